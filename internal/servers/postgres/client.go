package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockbench/lockbench/core/driver"
)

// poolConns is the largest number of connections of one pool. It is high, so that each caller
// of a benchmark has a connection. Users would raise a lower limit before they measure.
const poolConns = 300

// errAddress does not quote the address, because an address may contain a password.
var errAddress = errors.New("postgres: the address is none that pgx reads")

func fill(c *pgx.ConnConfig, cfg driver.Config) {
	c.User, c.Password = cmp.Or(cfg["username"], c.User), cmp.Or(cfg["password"], c.Password)
}

func Pool(cfg driver.Config) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(cfg["address"])
	if err != nil {
		return nil, errAddress
	}
	fill(c.ConnConfig, cfg)
	c.MaxConns = poolConns
	return pgxpool.NewWithConfig(context.Background(), c)
}

func remove(ctx context.Context, cfg driver.Config, prefix string) error {
	c, err := Dial(ctx, cfg)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	for _, table := range []string{"locks", "waiters", "tombstones"} {
		_, err := c.Exec(ctx, "DELETE FROM lockbench."+table+" WHERE substring(name FROM 1 FOR octet_length($1::bytea)) = $1", []byte(prefix))
		if err != nil && !stated(err, undefinedTable) {
			return err
		}
	}
	tables, err := texts(ctx, c, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND left(tablename, length($1)) = $1", prefix)
	for _, table := range tables {
		_, dropped := c.Exec(ctx, "DROP TABLE IF EXISTS "+pgx.Identifier{table}.Sanitize())
		err = errors.Join(err, dropped)
	}
	return err
}

// These are PostgreSQL's error codes (SQLSTATE) for a table or a schema that does not exist.
const (
	undefinedTable = "42P01"
	noSchema       = "3F000"
)

// stated reports whether err is an error that the server sent with one of the codes in states.
func stated(err error, states ...string) bool {
	var said *pgconn.PgError
	if !errors.As(err, &said) {
		return false
	}
	for _, state := range states {
		if said.Code == state {
			return true
		}
	}
	return false
}

type asker interface {
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
}

func texts(ctx context.Context, on asker, query string, args ...any) ([]string, error) {
	rows, err := on.Query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", query, err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", query, err)
	}
	return all, nil
}
