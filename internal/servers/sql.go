package servers

import (
	"context"
	"database/sql"
	"fmt"
)

// SQL gives operations access to the SQL server of an environment. A store's Product embeds it.
type SQL struct {
	*Environment
	Admin *sql.DB // logs in with the server's first account
	// Absent reports whether an error says that a table does not exist.
	Absent func(error) bool
	Ends   []string  // statements that end the locks of a connection
	held   *sql.Conn // an operation holds a lock or a transaction on it
}

// NewSQL returns s, and makes the end of the environment let go what s holds and close s.Admin.
func NewSQL(s SQL) *SQL {
	s.AtEnd(func() error { return s.letGo(context.Background()) })
	s.AtEnd(s.Admin.Close)
	return &s
}

func (s *SQL) Exec(ctx context.Context, statements ...string) error {
	return Exec(ctx, s.Admin, statements...)
}

// executor is a pool of connections, or one connection.
type executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Exec runs statements until one fails.
func Exec(ctx context.Context, on executor, statements ...string) error {
	for _, statement := range statements {
		if _, err := on.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// Texts returns the rows of a query. A row is one text.
func Texts(ctx context.Context, db *sql.DB, query string, args ...any) (all []string, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, rows.Err()
}

func (s *SQL) unlessAbsent(err error) error {
	if s.Absent(err) {
		return nil
	}
	return err
}

func (s *SQL) sql() *SQL { return s }

func onSQL(do func(ctx context.Context, s *SQL) error) Step {
	return func(ctx context.Context, e *Environment, _ int) error {
		return do(ctx, e.Product.(interface{ sql() *SQL }).sql())
	}
}

// Statements returns a step that runs SQL statements. The step does not fail if a table is missing.
func Statements(all ...string) Step {
	return onSQL(func(ctx context.Context, s *SQL) error { return s.unlessAbsent(s.Exec(ctx, all...)) })
}

// Holding returns a step that runs SQL statements and keeps their locks until the step [LetGo].
func Holding(all ...string) Step {
	return onSQL(func(ctx context.Context, s *SQL) error { return s.Hold(ctx, all...) })
}

// LetGo is a step that ends what the step [Holding] has begun.
var LetGo = onSQL(func(ctx context.Context, s *SQL) error { return s.letGo(ctx) })

// Hold runs SQL statements on a connection that stays open until [LetGo]. It ends without an error
// if a table is missing.
func (s *SQL) Hold(ctx context.Context, statements ...string) (err error) {
	if s.held, err = s.Admin.Conn(ctx); err != nil {
		return err
	}
	return s.unlessAbsent(Exec(ctx, s.held, statements...))
}

func (s *SQL) letGo(ctx context.Context) error {
	c := s.held
	if s.held = nil; c == nil {
		return nil
	}
	err := Exec(ctx, c, s.Ends...)
	if err != nil && ctx.Err() == nil && c.PingContext(ctx) != nil {
		err = nil // a crash has ended the connection, and its locks
	}
	_ = c.Close() // fails only if the connection has ended
	return err
}

// Rotate returns a step that writes the hosts' new password into their file, and then does the step
// by, which changes it on the server.
func Rotate(password string, by Step) Step {
	return func(ctx context.Context, e *Environment, n int) error {
		if err := e.WritePassword(password); err != nil {
			return err
		}
		return by(ctx, e, n)
	}
}
