package postgres

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockbench/lockbench/core/driver"
)

// TestWhatAnErrorLeavesOpen checks that an ERROR reply, in any language, means that a statement
// had no effect. A FATAL reply, which ends the connection, must leave the effect unknown.
func TestWhatAnErrorLeavesOpen(t *testing.T) {
	b := &Backend{}
	for _, tt := range []struct {
		said    pgconn.PgError
		notSent bool
		is      error
	}{
		{pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: "ERROR", Code: "57014"}, true, driver.ErrUnavailable},
		{pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: "ERROR", Code: insufficientRights}, true, driver.ErrDenied},
		{pgconn.PgError{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: lockNotAvailable}, true, driver.ErrUnavailable},
		{pgconn.PgError{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P01"}, false, driver.ErrUnavailable},
	} {
		err := b.failed("acquire", "jobs", &tt.said)
		if !errors.Is(err, tt.is) || errors.Is(err, driver.ErrNotSent) != tt.notSent {
			t.Errorf("%v: %v", tt.said, err)
		}
	}
}
