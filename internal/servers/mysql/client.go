package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"math"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
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
	tables, err := texts(ctx, db, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND LEFT(table_name, ?) = ?", len(prefix), prefix)
	return errors.Join(err, inject.Each(tables, func(table string) error {
		return execAll(ctx, db, "DROP TABLE IF EXISTS `"+table+"`")
	}))
}
