package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/bench/env"
	"github.com/lockbench/lockbench/core/driver"
)

func startMySQL(ctx context.Context, w Wish) (*Environment, error) {
	e := &Environment{Config: driver.Config{}}
	err := e.account(ctx, w)
	if err == nil {
		err = e.startSQLServer(ctx, w)
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	server := e.servers[0]
	e.address = func(at []string) string {
		a := strings.Replace(env.MariaDBAddress(server), server.Addr(), at[0], 1)
		return e.login() + a[strings.IndexByte(a, '@'):]
	}
	admin, err := openSQL(env.MariaDBAddress(server))
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	e.end = append(e.end, admin.Close)
	s, err := e.newSQLStore(ctx, admin)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	e.product = s
	e.Scene.ReadOnly, e.Scene.Exhaust = s.readOnly, s.exhaust
	return e, nil
}

// openSQL makes a pool that does not print what becomes of its connections.
func openSQL(address string) (*sql.DB, error) {
	cfg, err := mysql.ParseDSN(address)
	if err != nil {
		return nil, err
	}
	cfg.Logger = &mysql.NopLogger{}
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(c), nil
}

// login is what stands before the server in an address.
func (e *Environment) login() string {
	if e.passwordFile != "" {
		return hostUser
	}
	return hostUser + ":" + hostPassword
}

func (e *Environment) startSQLServer(ctx context.Context, w Wish) error {
	wrap, err := e.startClock(w)
	if err != nil {
		return err
	}
	server, err := env.StartMariaDB(ctx, &env.MariaDBOptions{Wrap: wrap, SQL: plainUser})
	if err == nil {
		e.add(server)
	}
	return err
}

// plainUser makes the hosts' account, which may not write to a read-only server,
// as the one of package env may.
var plainUser = []string{
	"DROP USER IF EXISTS " + sqlUser,
	"CREATE USER " + sqlUser + " IDENTIFIED BY '" + hostPassword + "'",
	"GRANT ALL ON lockbench.* TO " + sqlUser,
	"GRANT PROCESS ON *.* TO " + sqlUser,
}

const sqlUser = "'" + hostUser + "'@'%'"
