package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
)

// store answers questions about the server of one environment.
type store struct{ *servers.SQL }

func (s *store) Check(ctx context.Context) error {
	host, err := Dial(ctx, driver.Config{"address": servers.LoginTo(Address(s.Servers[0]), "postgres://"+servers.HostUser+":"+servers.HostPassword)})
	if err != nil {
		return err
	}
	defer host.Close(ctx)
	if err := host.Ping(ctx); err != nil {
		return err
	}
	changed, err := servers.Texts(ctx, s.Admin, "SELECT name FROM pg_file_settings WHERE sourcefile LIKE '%postgresql.auto.conf'"+
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
		some, err := servers.Texts(ctx, s.Admin, query+" AND substring(name FROM octet_length($1::bytea) + 1 FOR octet_length($2::bytea)) = $2", []byte(standard), []byte(prefix))
		if err != nil && !s.Absent(err) {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// standard is the default prefix of lock names in the table.
const standard = "lockbench_/"

var endSessions = servers.Statements("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '" + servers.HostUser + "'")

// poolConns is the largest number of connections of one pool. It is high, so that each caller
// of a benchmark has a connection. Users would raise a lower limit before they measure.
const poolConns = 300

// errAddress does not quote the address, because an address may contain a password.
var errAddress = errors.New("postgres: the address is none that pgx reads")

func fill(c *pgx.ConnConfig, cfg driver.Config) {
	c.User, c.Password = cmp.Or(cfg["username"], c.User), cmp.Or(cfg["password"], c.Password)
}

func config(cfg driver.Config) (*pgx.ConnConfig, error) {
	c, err := pgx.ParseConfig(cfg["address"])
	if err != nil {
		return nil, errAddress
	}
	fill(c, cfg)
	return c, nil
}

func Dial(ctx context.Context, cfg driver.Config) (*pgx.Conn, error) {
	c, err := config(cfg)
	if err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, c)
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

// open opens a pool of connections that operations use.
func open(cfg driver.Config) (*sql.DB, error) {
	c, err := config(cfg)
	if err != nil {
		return nil, err
	}
	return stdlib.OpenDB(*c), nil
}

func remove(ctx context.Context, cfg driver.Config, prefix string) error {
	db, err := open(cfg)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, table := range []string{"locks", "waiters", "tombstones"} {
		_, err := db.ExecContext(ctx, "DELETE FROM lockbench."+table+" WHERE substring(name FROM 1 FOR octet_length($1::bytea)) = $1", []byte(prefix))
		if err != nil && !absent(err) {
			return err
		}
	}
	tables, err := servers.Texts(ctx, db, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND left(tablename, length($1)) = $1", prefix)
	return errors.Join(err, inject.Each(tables, func(table string) error {
		return servers.Exec(ctx, db, "DROP TABLE IF EXISTS "+pgx.Identifier{table}.Sanitize())
	}))
}

// absent reports whether the server says that a table or a schema does not exist.
func absent(err error) bool {
	var said *pgconn.PgError
	return errors.As(err, &said) && (said.Code == undefinedTable || said.Code == noSchema)
}

// These are PostgreSQL's error codes (SQLSTATE) for a table or a schema that does not exist.
const (
	undefinedTable = "42P01"
	noSchema       = "3F000"
)
