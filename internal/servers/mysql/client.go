package mysql

import (
	"context"
	"database/sql"
	"errors"
	"math"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/fence"
	"github.com/lockbench/lockbench/internal/servers"
)

// sqlConns is how many connections a pool may use at a time: as many as
// callers, for it is the number that a user would raise first.
const sqlConns = 300

// Dial opens a pool from the configuration of a backend. Placeholders are
// filled in by the client, which saves the trip that prepares a statement.
func Dial(cfg driver.Config) (*sql.DB, error) {
	c, err := mysqldriver.ParseDSN(cfg["address"])
	if err != nil {
		return nil, errors.New("mysql: the address is none that go-sql-driver/mysql reads")
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

// thingConns is how many connections a process may use to write to things.
const thingConns = 4

func openThingRows(addr string) (*servers.Guarded, error) {
	db, err := Dial(driver.Config{"address": At(addr)})
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(thingConns)
	_, err = db.Exec(`CREATE TABLE IF NOT EXISTS things (
		name VARCHAR(200) PRIMARY KEY, body BIGINT UNSIGNED NOT NULL DEFAULT 0,
		lock_token BIGINT UNSIGNED NOT NULL DEFAULT 0, writes BIGINT NOT NULL DEFAULT 0)`)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &servers.Guarded{Write: thingRows{db}.write, WriteBare: thingRows{db}.writeBare, Close: db.Close}, nil
}

// thingRows keeps a thing in a row, with its token.
type thingRows struct{ *sql.DB }

func (db thingRows) insert(ctx context.Context, thing string) error {
	_, err := db.ExecContext(ctx, "INSERT IGNORE INTO things (name) VALUES (?)", thing)
	return err
}

func (db thingRows) write(ctx context.Context, thing string, token uint64) error {
	if err := db.insert(ctx, thing); err != nil {
		return err
	}
	query := "UPDATE things SET body = ?, writes = writes + 1, " + fence.Set("lock_token") + " WHERE name = ? AND " + fence.Where("lock_token")
	return fence.Exec(ctx, db, thing, token, query, token, token, thing, token)
}

func (db thingRows) writeBare(ctx context.Context, thing string, token uint64) error {
	if err := db.insert(ctx, thing); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, "UPDATE things SET body = ?, writes = writes + 1 WHERE name = ?", token, thing)
	return err
}

func remove(ctx context.Context, cfg driver.Config, prefix string) error {
	db, err := Dial(cfg)
	if err != nil {
		return err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND LEFT(table_name, ?) = ?", len(prefix), prefix)
	if err != nil {
		return err
	}
	defer rows.Close()
	var tables []string
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			return err
		}
		tables = append(tables, table)
	}
	errs := []error{rows.Err()}
	for _, table := range tables {
		_, err := db.ExecContext(ctx, "DROP TABLE IF EXISTS `"+table+"`")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
