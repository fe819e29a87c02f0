package baseline

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/core/driver"
	postgresserver "github.com/lockbench/lockbench/internal/servers/postgres"
)

const pgxModule = "github.com/jackc/pgx/v5"

var pgLeaseRowBaseline = Baseline{
	Name:      "pg-lease-row",
	Doc:       "a plain lease row in a table, asking every 10 ms",
	Backend:   "postgres",
	Module:    pgxModule,
	NoTokens:  true,
	Reference: true,
	Open: onPostgres(func(ctx context.Context, pool *pgxpool.Pool) (locks, error) {
		_, err := pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS "+leaseTable+" (name bytea PRIMARY KEY, owner text NOT NULL, expires_at timestamptz NOT NULL)")
		return func(name string, ttl time.Duration) (load.Lock, error) {
			return &leaseRow{ttl: ttl, statements: pgLeaseRow{pool, []byte(name)}}, nil
		}, err
	}),
}

type pgLeaseRow struct {
	pool *pgxpool.Pool
	name []byte
}

func (l pgLeaseRow) acquire(ctx context.Context, owner string, ttl time.Duration) (bool, error) {
	return l.exec(ctx, "INSERT INTO "+leaseTable+" AS l (name, owner, expires_at) VALUES ($1, $2, clock_timestamp() + $3 * interval '1 microsecond')"+
		" ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at WHERE l.expires_at < clock_timestamp()",
		l.name, owner, ttl.Microseconds())
}

func (l pgLeaseRow) renew(ctx context.Context, owner string, ttl time.Duration) (bool, error) {
	return l.exec(ctx, "UPDATE "+leaseTable+" SET expires_at = clock_timestamp() + $3 * interval '1 microsecond'"+
		" WHERE name = $1 AND owner = $2 AND expires_at > clock_timestamp()", l.name, owner, ttl.Microseconds())
}

func (l pgLeaseRow) release(ctx context.Context, owner string) (bool, error) {
	return l.exec(ctx, "UPDATE "+leaseTable+" SET expires_at = '-infinity' WHERE name = $1 AND owner = $2", l.name, owner)
}

func (l pgLeaseRow) exec(ctx context.Context, statement string, args ...any) (changed bool, err error) {
	tag, err := l.pool.Exec(ctx, statement, args...)
	return tag.RowsAffected() > 0, err
}

// These are PostgreSQL's advisory locks. Most lock libraries for PostgreSQL use pg_advisory_lock.
var (
	pgAdvisoryBaseline   = advisoryLock("pg-advisory", "pg_advisory_lock on a connection", advisory)
	pgAdvisoryTxBaseline = advisoryLock("pg-advisory-tx", "pg_advisory_xact_lock in a transaction", advisoryTx)
)

func advisoryLock(name, doc string, ask func(context.Context, *pgxpool.Pool, int64) (load.Lease, error)) Baseline {
	return Baseline{
		Name:     name,
		Doc:      doc + " for each lease; no TTL, no token, nothing written",
		Backend:  "postgres",
		Module:   pgxModule,
		NoTokens: true,
		Renews:   true, // it has no TTL
		Frees:    true, // its connection ends with the host
		Open: onPostgres(func(_ context.Context, pool *pgxpool.Pool) (locks, error) {
			return func(name string, _ time.Duration) (load.Lock, error) {
				return acquire(func(ctx context.Context) (load.Lease, error) { return ask(ctx, pool, keyOf(name)) }), nil
			}, nil
		}),
	}
}

// keyOf returns a number for a lock name, because an advisory lock has a number, not a name.
func keyOf(name string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash never fails
	return int64(h.Sum64())
}

// onPostgres returns an Open function that connects a pool. The given function makes the locks.
func onPostgres(of func(context.Context, *pgxpool.Pool) (locks, error)) func(context.Context, driver.Config) (load.Locker, error) {
	return func(ctx context.Context, cfg driver.Config) (load.Locker, error) {
		pool, err := postgresserver.Pool(cfg)
		if err != nil {
			return nil, err
		}
		end := func() error { pool.Close(); return nil }
		prepare, err := of(ctx, pool)
		if err != nil {
			return nil, errors.Join(err, end())
		}
		return locker{prepare, end}, nil
	}
}

func advisory(ctx context.Context, pool *pgxpool.Pool, key int64) (load.Lease, error) {
	c, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := c.Exec(ctx, "SELECT pg_advisory_lock($1)", key); err != nil {
		c.Release() // an interrupted statement closes its connection, which releases the lock
		return nil, err
	}
	return untimed{lease{
		renew: func(ctx context.Context) error { return lives(c.Ping(ctx)) },
		release: func(ctx context.Context) error {
			defer c.Release()
			var was bool
			if err := c.QueryRow(ctx, "SELECT pg_advisory_unlock($1)", key).Scan(&was); err != nil || !was {
				return lives(errors.Join(err, errors.New("the server refused")))
			}
			return nil
		},
	}}, nil
}

func advisoryTx(ctx context.Context, pool *pgxpool.Pool, key int64) (load.Lease, error) {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{})
	if err != nil {
		return nil, err
	}
	whole := context.WithoutCancel(ctx)
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", key); err != nil {
		return nil, errors.Join(err, tx.Rollback(whole))
	}
	return untimed{lease{
		renew:   func(ctx context.Context) error { return lives(tx.Conn().Ping(ctx)) },
		release: func(ctx context.Context) error { return lives(tx.Commit(ctx)) },
	}}, nil
}

// lives wraps a connection's error in ErrNotHeld, because the lock ends with its connection.
func lives(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", driver.ErrNotHeld, err)
}
