package baseline

import (
	"context"
	"errors"
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
	Open: on(dialPostgres, func(ctx context.Context, pool pgPool) (locks, error) {
		return leaseRows(ctx, leaseStatements{
			create: "CREATE TABLE IF NOT EXISTS " + leaseTable + " (name bytea PRIMARY KEY, owner text NOT NULL, expires_at timestamptz NOT NULL)",
			acquire: "INSERT INTO " + leaseTable + " AS l (name, owner, expires_at) VALUES ($1, $2, clock_timestamp() + $3 * interval '1 microsecond')" +
				" ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at WHERE l.expires_at < clock_timestamp()",
			renew: "UPDATE " + leaseTable + " SET expires_at = clock_timestamp() + $1 * interval '1 microsecond'" +
				" WHERE name = $2 AND owner = $3 AND expires_at > clock_timestamp()",
			release: "UPDATE " + leaseTable + " SET expires_at = '-infinity' WHERE name = $1 AND owner = $2",
			exec: func(ctx context.Context, statement string, args ...any) (int64, error) {
				tag, err := pool.Exec(ctx, statement, args...)
				return tag.RowsAffected(), err
			},
		})
	}),
}

// These are PostgreSQL's advisory locks. Most lock libraries for PostgreSQL use pg_advisory_lock.
var (
	pgAdvisoryBaseline   = pgAdvisory("pg-advisory", "pg_advisory_lock on a connection", onConnection)
	pgAdvisoryTxBaseline = pgAdvisory("pg-advisory-tx", "pg_advisory_xact_lock in a transaction", inTransaction)
)

func pgAdvisory(name, doc string, ask func(context.Context, pgPool, int64) (load.Lease, error)) Baseline {
	return advisory(Baseline{
		Name:    name,
		Doc:     doc,
		Backend: "postgres",
		Module:  pgxModule,
		Open: on(dialPostgres, func(_ context.Context, pool pgPool) (locks, error) {
			return func(name string, _ time.Duration) (load.Lock, error) {
				return acquire(func(ctx context.Context) (load.Lease, error) { return ask(ctx, pool, keyOf(name)) }), nil
			}, nil
		}),
	})
}

// pgPool is a pool whose Close returns an error, as [io.Closer] needs it.
type pgPool struct{ *pgxpool.Pool }

func (p pgPool) Close() error {
	p.Pool.Close()
	return nil
}

func dialPostgres(cfg driver.Config) (pgPool, error) {
	pool, err := postgresserver.Pool(cfg)
	return pgPool{pool}, err
}

// keyOf returns a number for a lock name, because an advisory lock has a number, not a name.
func keyOf(name string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash never fails
	return int64(h.Sum64())
}

func onConnection(ctx context.Context, pool pgPool, key int64) (load.Lease, error) {
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

func inTransaction(ctx context.Context, pool pgPool, key int64) (load.Lease, error) {
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
