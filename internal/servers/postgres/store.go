package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
)

// store gives operations access to the server of one environment.
type store struct {
	*servers.Environment
	admin *pgxpool.Pool
	// held is a connection on which an operation holds a lock or a transaction.
	held *pgxpool.Conn
}

func newStore(_ context.Context, e *servers.Environment) (*store, error) {
	admin, err := Pool(driver.Config{"address": Address(e.Servers[0])})
	if err != nil {
		return nil, err
	}
	s := &store{Environment: e, admin: admin}
	e.AtEnd(func() error { admin.Close(); return nil })
	e.AtEnd(func() error { return letGo(context.Background(), s, 0) })
	return s, nil
}

func (s *store) exec(ctx context.Context, statements ...string) error {
	for _, statement := range statements {
		if _, err := s.admin.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// hold runs SQL statements on a connection that stays open until [letGo].
func (s *store) hold(ctx context.Context, statements ...string) error {
	c, err := s.admin.Acquire(ctx)
	if err != nil {
		return err
	}
	s.held = c
	for _, statement := range statements {
		if _, err := c.Exec(ctx, statement); err != nil && !stated(err, undefinedTable, noSchema) {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

func letGo(ctx context.Context, s *store, _ int) error {
	if s.held == nil {
		return nil
	}
	c := s.held
	s.held = nil
	_, err := c.Exec(ctx, "ROLLBACK")
	c.Release()
	if err != nil && c.Conn().IsClosed() {
		err = nil // a crash has ended the connection
	}
	return err
}

func (s *store) Check(ctx context.Context) error {
	host, err := Dial(ctx, driver.Config{"address": servers.LoginTo(Address(s.Servers[0]), "postgres://"+servers.HostUser+":"+servers.HostPassword)})
	if err != nil {
		return err
	}
	defer host.Close(ctx)
	if err := host.Ping(ctx); err != nil {
		return err
	}
	changed, err := texts(ctx, s.admin, "SELECT name FROM pg_file_settings WHERE sourcefile LIKE '%postgresql.auto.conf'"+
		" UNION ALL SELECT 'a limit of '||rolconnlimit FROM pg_roles WHERE rolname = '"+servers.HostUser+"' AND rolconnlimit <> -1")
	if err == nil && len(changed) > 0 {
		err = fmt.Errorf("%q is changed", changed)
	}
	return err
}

func (s *store) Left(ctx context.Context, prefix string) ([]string, error) {
	var all []string
	for _, query := range []string{
		"SELECT format('the row %s, held by %s', encode(name, 'escape'), owner) FROM lockbench.locks WHERE owner <> '' AND ends > clock_timestamp()",
		"SELECT format('the place of %s in the queue of %s', owner, encode(name, 'escape')) FROM lockbench.waiters WHERE until > clock_timestamp()",
	} {
		// Plugins of hosts have the default prefix, so the name in a row is "lockbench_/PREFIX...".
		some, err := texts(ctx, s.admin, query+" AND substring(name FROM octet_length($1::bytea) + 1 FOR octet_length($2::bytea)) = $2", []byte(standard), []byte(prefix))
		if err != nil && !stated(err, undefinedTable, noSchema) {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// standard is the default prefix of lock names in the table.
const standard = "lockbench_/"

var endSessions = statements("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '" + servers.HostUser + "'")

// statements returns a step that runs SQL statements. The step does not fail if a table is missing.
func statements(all ...string) servers.Step {
	return servers.On(func(ctx context.Context, s *store, _ int) error {
		err := s.exec(ctx, all...)
		if stated(err, undefinedTable, noSchema) {
			return nil
		}
		return err
	})
}

// holding returns a step that runs SQL statements whose locks are held until the step [letGo].
func holding(all ...string) servers.Step {
	return servers.On(func(ctx context.Context, s *store, _ int) error { return s.hold(ctx, all...) })
}

func inOneTransaction(all ...string) servers.Step {
	return servers.On(func(ctx context.Context, s *store, _ int) error {
		tx, err := s.admin.Begin(ctx)
		if err != nil {
			return err
		}
		for _, statement := range all {
			if _, err = tx.Exec(ctx, statement); err != nil {
				break
			}
		}
		if err != nil {
			err = errors.Join(err, tx.Rollback(ctx))
		} else {
			err = tx.Commit(ctx)
		}
		if stated(err, undefinedTable, noSchema) {
			return nil
		}
		return err
	})
}
