package store

import (
	"context"
	"database/sql"
	"errors"
	"math"

	"github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/fence"
	"github.com/lockbench/lockbench/internal/env"
)

// sqlConns is how many connections a pool may use at a time: as many as
// callers, for it is the number that a user would raise first.
const sqlConns = 300

// DialSQL opens a pool from the configuration of a backend. Placeholders are
// filled in by the client, which saves the trip that prepares a statement.
func DialSQL(cfg driver.Config) (*sql.DB, error) {
	c, err := mysql.ParseDSN(cfg["address"])
	if err != nil {
		return nil, errors.New("store: the address is none that go-sql-driver/mysql reads")
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
	c.Logger = &mysql.NopLogger{} // its errors are returned as well
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, errors.New("store: the address is none that go-sql-driver/mysql connects to")
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(sqlConns)
	db.SetMaxIdleConns(sqlConns)
	return db, nil
}

func countSQL(cfg driver.Config) (*Counter, error) {
	db, err := DialSQL(cfg)
	if err != nil {
		return nil, err
	}
	c := &Counter{own: 1, close: db.Close}
	c.nodes = append(c.nodes, func(ctx context.Context) (Served, error) {
		var name string
		var n float64
		err := db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n)
		return Served{n, n - c.own*c.reads, math.NaN()}, err
	})
	return c, nil
}

// thingConns is how many connections a process may use to write to things.
const thingConns = 4

func openThingRows(addr string) (*Guarded, error) {
	db, err := DialSQL(driver.Config{"address": env.MariaDBAt(addr)})
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
	return &Guarded{Write: thingRows{db}.write, WriteBare: thingRows{db}.writeBare, Close: db.Close}, nil
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
