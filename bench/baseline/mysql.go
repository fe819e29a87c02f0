package baseline

import (
	"context"
	"database/sql"
	"errors"
	"maps"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/bench/load"
	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/mysql"
)

// tablePrefix is keyPrefix for SQL.
const tablePrefix = "lockbench_baseline_"

// mysqlConns is how many connections a baseline may use at a time: as many as
// callers, for it is the number that a user would raise first.
const mysqlConns = 300

// dialMySQL opens the pool of all baselines from the configuration of the mysql
// backend. Placeholders are filled in by the client, which saves the trip that
// prepares a statement.
func dialMySQL(cfg driver.Config) (*sql.DB, error) {
	c, err := mysqldriver.ParseDSN(cfg["address"])
	if err != nil {
		return nil, errors.New("baseline: the address is none that go-sql-driver/mysql reads")
	}
	if cfg["username"] != "" {
		c.User = cfg["username"]
	}
	if cfg["password"] != "" {
		c.Passwd = cfg["password"]
	}
	if cfg.Bool("tls_enabled") && c.TLSConfig == "" {
		c.TLSConfig = "true"
	}
	c.InterpolateParams = true
	c.Logger = &mysqldriver.NopLogger{} // its errors are returned as well
	connector, err := mysqldriver.NewConnector(c)
	if err != nil {
		return nil, errors.New("baseline: the address is none that go-sql-driver/mysql connects to")
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(mysqlConns)
	db.SetMaxIdleConns(mysqlConns)
	return db, nil
}

// MySQLPing returns the floor of everything that asks a MySQL server: one
// statement that reads nothing, through the pool.
func MySQLPing(cfg driver.Config) (call func(context.Context) error, end func() error, err error) {
	db, err := dialMySQL(cfg)
	if err != nil {
		return nil, nil, err
	}
	call = func(ctx context.Context) error {
		_, err := db.ExecContext(ctx, "DO 1")
		return err
	}
	return call, db.Close, nil
}

var inProcessMySQL = Baseline{
	Name:    "mysql-in-process",
	Doc:     "our mysql library without the plugin process",
	Backend: "mysql",
	Fencing: mysql.Spec.Properties.Fencing,
	Open: func(ctx context.Context, cfg driver.Config) (load.Locker, error) {
		own := maps.Clone(cfg)
		own["prefix"] = tablePrefix + "in_process_"
		own, err := mysql.Spec.CheckConfig(own) // with the defaults
		if err != nil {
			return nil, err
		}
		b, err := mysql.Spec.Open(ctx, own, discard)
		if err != nil {
			return nil, err
		}
		return load.NewCore(b, &core.Options{Logger: discard}), nil
	},
}
