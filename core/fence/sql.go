package fence

import (
	"context"
	"database/sql"
	"fmt"
)

// Execer is what [Exec] needs of a database: *sql.DB, *sql.Tx and *sql.Conn.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Set is the assignment that an UPDATE of a guarded row must make:
// "column = ?". The argument is the token. Databases that number their
// placeholders write the two clauses themselves.
func Set(column string) string { return column + " = ?" }

// Where is the condition that an UPDATE of a guarded row must carry:
// "column <= ?". The argument is the token. The column is BIGINT UNSIGNED NOT
// NULL DEFAULT 0, or NUMERIC(20) where there are no unsigned integers.
func Where(column string) string { return "(" + column + " <= ?)" }

// Exec runs an UPDATE or DELETE that carries [Where], and returns a
// [*StaleError] for name when it touched no row: the row has seen a higher
// token, or does not exist. Check and write are one statement, so nothing can
// come between them.
//
// Note: MySQL counts rows that changed, not rows that matched, unless the DSN
// says clientFoundRows=true. Without it, repeating a write with the same token
// and the same values looks stale.
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
