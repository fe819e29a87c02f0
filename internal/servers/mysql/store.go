package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
)

type store struct {
	*servers.SQL
	// second has connections to the replica. It is nil if there is no replica.
	second *sql.DB
	// The map began has the values that the server's settings had when the store was made.
	began map[string]string
}

func newStore(ctx context.Context, e *servers.Environment) (*store, error) {
	admin, err := Dial(driver.Config{"address": Address(e.Servers[0])})
	if err != nil {
		return nil, err
	}
	s := &store{SQL: servers.NewSQL(servers.SQL{Environment: e, Admin: admin, Ends: []string{"ROLLBACK", "UNLOCK TABLES"},
		Absent: func(err error) bool { return numbered(err, unknownTable) }})}
	s.began, err = s.settings(ctx)
	return s, err
}

func (s *store) settings(ctx context.Context) (map[string]string, error) {
	names := []string{"read_only", "max_connections"}
	for _, c := range sqlChanges {
		names = append(names, c.setting)
	}
	all := map[string]string{}
	for _, name := range names {
		value, err := servers.Texts(ctx, s.Admin, "SELECT @@GLOBAL."+name)
		if err != nil {
			return nil, err
		}
		all[name] = value[0]
	}
	return all, nil
}

// endSessions ends all connections of hosts.
var endSessions = kill("KILL ")

// kill returns a step that runs the given KILL statement for each connection of hosts. A connection
// that is already gone is no error.
func kill(statement string) servers.Step {
	return servers.On(func(ctx context.Context, s *store, _ int) error {
		ids, err := servers.Texts(ctx, s.Admin, "SELECT id FROM information_schema.processlist WHERE user = '"+servers.HostUser+"'")
		return errors.Join(err, inject.Each(ids, func(id string) error {
			if err := s.Exec(ctx, statement+id); !numbered(err, unknownThread) {
				return err
			}
			return nil
		}))
	})
}

// These are MySQL's error numbers for a connection or a table that does not exist.
const unknownThread, unknownTable = 1094, 1146

func numbered(err error, number uint16) bool {
	var said *mysqldriver.MySQLError
	return errors.As(err, &said) && said.Number == number
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
	limits, err := servers.Texts(ctx, s.Admin, "SELECT max_user_connections FROM mysql.user WHERE User = '"+servers.HostUser+"'")
	if err == nil && !slices.Equal(limits, []string{"0"}) {
		err = fmt.Errorf("hosts may have %v connections", limits)
	}
	if err == nil && s.second != nil {
		err = s.follows(ctx)
	}
	return err
}

func (s *store) Left(ctx context.Context, prefix string) ([]string, error) {
	rows, err := servers.Texts(ctx, s.Admin, "SELECT CONCAT('the row ', name, ', held by ''', owner, ''', waited for by ''', queue, '''') FROM "+sqlTable+
		" WHERE LEFT(name, "+fmt.Sprint(len(prefix))+") = '"+prefix+"' AND (owner <> '' AND expires_at > UTC_TIMESTAMP(6) OR queue <> '')")
	if s.Absent(err) {
		return nil, nil
	}
	return rows, err
}

// sqlTable is the table of the locks. sqlSaved is a temporary copy of that table.
const (
	sqlTable = "lockbench.lockbench_locks"
	sqlSaved = "lockbench.saved_locks"
)

// sqlConns limits the connections of one pool. The limit is high, so that each caller of a
// benchmark has a connection.
const sqlConns = 300

// Dial opens a pool of connections to the server that a backend's configuration names. The client
// itself fills placeholders with values, so it needs no round trip to prepare a statement.
func Dial(cfg driver.Config) (*sql.DB, error) {
	c, err := mysqldriver.ParseDSN(cfg["address"])
	if err != nil {
		return nil, errors.New("mysql: the address is none that go-sql-driver/mysql reads")
	}
	c.User, c.Passwd = cmp.Or(cfg["username"], c.User), cmp.Or(cfg["password"], c.Passwd)
	if cfg.Bool("tls_enabled") && c.TLSConfig == "" {
		c.TLSConfig = "true"
	}
	c.InterpolateParams = true
	c.Logger = &mysqldriver.NopLogger{} // the logged errors are also returned
	connector, err := mysqldriver.NewConnector(c)
	if err != nil {
		return nil, errors.New("mysql: the address is none that go-sql-driver/mysql connects to")
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(sqlConns)
	db.SetMaxIdleConns(sqlConns)
	return db, nil
}

func count(cfg driver.Config) (*servers.Counter, error) {
	db, err := Dial(cfg)
	if err != nil {
		return nil, err
	}
	c := &servers.Counter{Own: 1, End: db.Close}
	c.Nodes = append(c.Nodes, func(ctx context.Context) (servers.Served, error) {
		var name string
		var n float64
		err := db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n)
		return servers.Served{Run: n, Sent: n - c.Own*c.Reads, Busy: math.NaN()}, err
	})
	return c, nil
}

func remove(ctx context.Context, cfg driver.Config, prefix string) error {
	db, err := Dial(cfg)
	if err != nil {
		return err
	}
	defer db.Close()
	tables, err := servers.Texts(ctx, db, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND LEFT(table_name, ?) = ?", len(prefix), prefix)
	return errors.Join(err, inject.Each(tables, func(table string) error {
		return servers.Exec(ctx, db, "DROP TABLE IF EXISTS `"+table+"`")
	}))
}
