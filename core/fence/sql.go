package fence

import (
	"context"
	"database/sql"
	"fmt"
)

// Execer is the part of a database that [Exec] needs. *sql.DB, *sql.Tx and *sql.Conn implement it.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Set returns the assignment that an UPDATE of a guarded row must make: "column = ?". The caller
// must pass the token for the "?". If the database has numbered placeholders ("$1"), write the
// texts of Set and [Where] yourself.
func Set(column string) string { return column + " = ?" }

// Where returns the condition that an UPDATE of a guarded row must have: "(column <= ?)". The
// caller must pass the token for the "?". The column must be BIGINT UNSIGNED NOT NULL DEFAULT 0, or
// NUMERIC(20) if the database has no unsigned integers.
func Where(column string) string { return "(" + column + " <= ?)" }

// Exec executes an UPDATE or DELETE that contains [Where]. If the statement affects no row, Exec
// returns a [*StaleError] for name. In that case, the row has seen a higher token or does not
// exist. The check and the write are one statement, so no other write can come between them.
//
// Note: MySQL counts the rows that changed, not the rows that matched, unless the DSN has
// clientFoundRows=true. Without that setting, a repeated write with the same token and the same
// values looks stale.
func Exec(ctx context.Context, db Execer, name string, token uint64, query string, args ...any) error {
	if token == 0 {
		return ErrNoToken
	}
	res, err := db.ExecContext(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("fence: write %q: %w", name, err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return fmt.Errorf("fence: count the rows of %q: %w", name, err)
	}
	if n == 0 {
		return &StaleError{Name: name, Token: token}
	}
	return nil
}
