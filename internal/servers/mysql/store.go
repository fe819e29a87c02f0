package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
)

type store struct {
	*servers.Environment
	admin *sql.DB
	// second has connections to the replica. It is nil if there is no replica.
	second *sql.DB
	// The map began has the values that the server's settings had when the store was made.
	began map[string]string
	// held is a connection on which an operation holds a lock or a transaction.
	held *sql.Conn
}

func newStore(ctx context.Context, e *servers.Environment) (*store, error) {
	admin, err := Dial(driver.Config{"address": Address(e.Servers[0])})
	if err != nil {
		return nil, err
	}
	s := &store{Environment: e, admin: admin}
	e.AtEnd(admin.Close)
	e.AtEnd(func() error { return letGo(context.Background(), s, 0) })
	s.began, err = s.settings(ctx)
	return s, err
}

func (s *store) exec(ctx context.Context, statements ...string) error {
	return execAll(ctx, s.admin, statements...)
}

func execAll(ctx context.Context, on *sql.DB, statements ...string) error {
	for _, statement := range statements {
		if _, err := on.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

func (s *store) settings(ctx context.Context) (map[string]string, error) {
	names := []string{"read_only", "max_connections"}
	for _, c := range sqlChanges {
		names = append(names, c.setting)
	}
	all := map[string]string{}
	for _, name := range names {
		value, err := s.texts(ctx, "SELECT @@GLOBAL."+name)
		if err != nil {
			return nil, err
		}
		all[name] = value[0]
	}
	return all, nil
}

// endSessions ends all connections of hosts. A connection that is already gone is no error.
var endSessions = servers.On(func(ctx context.Context, s *store, _ int) error {
	ids, err := s.texts(ctx, "SELECT id FROM information_schema.processlist WHERE user = '"+servers.HostUser+"'")
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		if err := s.exec(ctx, "KILL "+id); !numbered(err, unknownThread) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
})

// These are MySQL's error numbers for a connection or a table that does not exist.
const (
	unknownThread = 1094
	unknownTable  = 1146
)

func numbered(err error, number uint16) bool {
	var said *mysqldriver.MySQLError
	return errors.As(err, &said) && said.Number == number
}

func (s *store) texts(ctx context.Context, query string) ([]string, error) {
	return texts(ctx, s.admin, query)
}

func texts(ctx context.Context, db *sql.DB, query string, args ...any) ([]string, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", query, err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, rows.Err()
}

// hold runs SQL statements on a connection that stays open until [letGo].
func (s *store) hold(ctx context.Context, statements ...string) error {
	c, err := s.admin.Conn(ctx)
	if err != nil {
		return err
	}
	s.held = c
	for _, statement := range statements {
		if _, err := c.ExecContext(ctx, statement); err != nil && !numbered(err, unknownTable) {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// letGo ends the lock or the transaction on the connection s.held, and closes the connection.
func letGo(ctx context.Context, s *store, _ int) error {
	if s.held == nil {
		return nil
	}
	c := s.held
	s.held = nil
	_, err := c.ExecContext(ctx, "ROLLBACK")
	if err == nil {
		_, err = c.ExecContext(ctx, "UNLOCK TABLES")
	}
	if err != nil && s.Servers[0].Pid() == 0 {
		err = nil // a crash has ended the connection
	}
	return errors.Join(err, c.Close())
}

func (s *store) Check(ctx context.Context) error {
	host, err := Dial(driver.Config{"address": servers.LoginTo(s.ConfigOf(nil)["address"], servers.HostUser+":"+servers.HostPassword)})
	if err != nil {
		return err
	}
	defer host.Close()
	if err := host.PingContext(ctx); err != nil {
		return err
	}
	now, err := s.settings(ctx)
	if err != nil {
		return err
	}
	for name, was := range s.began {
		if now[name] != was {
			return fmt.Errorf("%s is %q, not %q", name, now[name], was)
		}
	}
	limits, err := s.texts(ctx, "SELECT max_user_connections FROM mysql.user WHERE User = '"+servers.HostUser+"'")
	if err == nil && !slices.Equal(limits, []string{"0"}) {
		err = fmt.Errorf("hosts may have %v connections", limits)
	}
	if err == nil && s.second != nil {
		err = s.follows(ctx)
	}
	return err
}

func (s *store) Left(ctx context.Context, prefix string) ([]string, error) {
	rows, err := s.texts(ctx, "SELECT CONCAT('the row ', name, ', held by ''', owner, ''', waited for by ''', queue, '''') FROM "+sqlTable+
		" WHERE LEFT(name, "+fmt.Sprint(len(prefix))+") = '"+prefix+"' AND (owner <> '' AND expires_at > UTC_TIMESTAMP(6) OR queue <> '')")
	if numbered(err, unknownTable) {
		return nil, nil
	}
	return rows, err
}

// sqlTable is the table of the locks. sqlSaved is a temporary copy of that table.
const (
	sqlTable = "lockbench.lockbench_locks"
	sqlSaved = "lockbench.saved_locks"
)
