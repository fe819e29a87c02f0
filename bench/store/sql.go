package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/bench/env"
	"github.com/lockbench/lockbench/core/driver"
)

func startMySQL(ctx context.Context, w Wish) (*Environment, error) {
	e := &Environment{Config: driver.Config{}}
	wrap, err := e.startClock(w)
	if err != nil {
		return nil, err
	}
	server, err := env.StartMariaDB(ctx, &env.MariaDBOptions{Wrap: wrap, SQL: plainUser})
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	e.add(server)
	e.address = func(at []string) string {
		a := strings.Replace(env.MariaDBAddress(server), server.Addr(), at[0], 1)
		return strings.Replace(a, rootOfEnv, plainOfEnv, 1)
	}
	admin, err := sql.Open("mysql", env.MariaDBAddress(server))
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	e.end = append(e.end, admin.Close)
	e.sqlPowers(admin)
	return e, nil
}

// The hosts' account may not write to a read-only server, which the one of
// package env may.
const (
	rootOfEnv  = "lockbench:lockbench-password@"
	plainOfEnv = "witness:witness-password@"
)

var plainUser = []string{
	"DROP USER IF EXISTS 'witness'@'%'",
	"CREATE USER 'witness'@'%' IDENTIFIED BY 'witness-password'",
	"GRANT ALL ON lockbench.* TO 'witness'@'%'",
	"GRANT PROCESS ON *.* TO 'witness'@'%'",
}

func (e *Environment) sqlPowers(admin *sql.DB) {
	e.Scene.ReadOnly = func(ctx context.Context, on bool) error {
		_, err := admin.ExecContext(ctx, fmt.Sprintf("SET GLOBAL read_only = %t", on))
		return err
	}
	e.Scene.Exhaust = func(ctx context.Context, on bool) error {
		// The server's own limit is at least 10, so the account is given one.
		limit := 0
		if on {
			limit = 1
		}
		_, err := admin.ExecContext(ctx, fmt.Sprintf("ALTER USER 'witness'@'%%' WITH MAX_USER_CONNECTIONS %d", limit))
		if on && err == nil {
			err = endSessions(ctx, admin)
		}
		return err
	}
}

// endSessions ends the connections of the hosts. One that has just ended by
// itself is no error.
func endSessions(ctx context.Context, admin *sql.DB) error {
	rows, err := admin.QueryContext(ctx, "SELECT id FROM information_schema.processlist WHERE user = 'witness'")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return err
		}
		var gone *mysql.MySQLError
		if _, err := admin.ExecContext(ctx, fmt.Sprintf("KILL %d", id)); err != nil && !(errors.As(err, &gone) && gone.Number == unknownThread) {
			return err
		}
	}
	return rows.Err()
}

// unknownThread is the server's number for a connection that does not exist.
const unknownThread = 1094
