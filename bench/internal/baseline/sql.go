package baseline

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	mrand "math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/proc"
	mysqlserver "github.com/lockbench/lockbench/internal/servers/mysql"
	postgresserver "github.com/lockbench/lockbench/internal/servers/postgres"
)

// leaseRowBaseline is the lock that applications with a database usually write themselves. An
// upsert takes a free or expired row, and an update frees the row. A caller that finds the row
// taken asks again after 10 ms. The lock has no tokens and no queue.
var leaseRowBaseline = Baseline{
	Name:      "lease-row",
	Doc:       "a plain lease row in a table, asking every 10 ms",
	Backend:   "mysql",
	Module:    "github.com/go-sql-driver/mysql",
	NoTokens:  true,
	Reference: true,
	Open: on(mysqlserver.Dial, func(ctx context.Context, db *sql.DB) (locks, error) {
		return leaseRows(ctx, leaseStatements{
			create: "CREATE TABLE IF NOT EXISTS " + leaseTable +
				" (name VARBINARY(512) NOT NULL PRIMARY KEY, owner VARCHAR(64) NOT NULL, expires_at DATETIME(6) NOT NULL) ENGINE=InnoDB",
			acquire: "INSERT INTO " + leaseTable + " (name, owner, expires_at) VALUES (?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)" +
				" ON DUPLICATE KEY UPDATE owner = IF(expires_at < UTC_TIMESTAMP(6), VALUES(owner), owner)," +
				" expires_at = IF(owner = VALUES(owner), VALUES(expires_at), expires_at)",
			renew:   "UPDATE " + leaseTable + " SET expires_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND WHERE name = ? AND owner = ? AND expires_at > UTC_TIMESTAMP(6)",
			release: "UPDATE " + leaseTable + " SET expires_at = '1970-01-01' WHERE name = ? AND owner = ?",
			exec: func(ctx context.Context, statement string, args ...any) (int64, error) {
				result, err := db.ExecContext(ctx, statement, args...)
				if err != nil {
					return 0, err
				}
				return result.RowsAffected()
			},
		})
	}),
}

const (
	leaseTable = tablePrefix + "lease_row"
	leasePoll  = 10 * time.Millisecond
)

// leaseStatements are SQL statements, and a function that executes one and counts changed rows.
type leaseStatements struct {
	create  string // of the table
	acquire string // its arguments: name, owner, TTL in microseconds
	renew   string // TTL, name, owner
	release string // name, owner
	exec    func(ctx context.Context, statement string, args ...any) (changed int64, err error)
}

func leaseRows(ctx context.Context, s leaseStatements) (locks, error) {
	_, err := s.exec(ctx, s.create)
	return func(name string, ttl time.Duration) (load.Lock, error) { return &leaseRow{s, []byte(name), ttl}, nil }, err
}

type leaseRow struct {
	leaseStatements
	name []byte
	ttl  time.Duration
}

func (l *leaseRow) Acquire(ctx context.Context) (load.Lease, error) {
	for {
		lease, err := l.TryAcquire(ctx)
		if !errors.Is(err, driver.ErrHeld) {
			return lease, err
		}
		if !proc.Sleep(ctx, leasePoll/2+mrand.N(leasePoll)) {
			return nil, ctx.Err()
		}
	}
}

// TryAcquire implements load.Trier. It lets a statement finish even if ctx ends. The server could
// still execute an interrupted statement, and then no caller would free the row.
func (l *leaseRow) TryAcquire(ctx context.Context) (load.Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.ttl)
	defer cancel()
	owner := rand.Text()
	held := lease{
		renew: func(ctx context.Context) error {
			return there(l.exec(ctx, l.renew, l.ttl.Microseconds(), l.name, owner))
		},
		release: func(ctx context.Context) error { return there(l.exec(ctx, l.release, l.name, owner)) },
	}
	changed, err := l.exec(whole, l.acquire, l.name, owner, l.ttl.Microseconds())
	switch {
	case err != nil:
		return nil, err
	case changed == 0:
		return nil, driver.ErrHeld
	case ctx.Err() != nil:
		return nil, errors.Join(ctx.Err(), held.release(whole))
	}
	return held, nil
}

// there returns ErrNotHeld if a statement changed no row, because the lease has then ended.
func there(changed int64, err error) error {
	if err == nil && changed == 0 {
		return driver.ErrNotHeld
	}
	return err
}

// getLockBaseline is MySQL's advisory lock, which has no TTL and ends with its connection. To take
// the lock costs only a round trip, because the server writes nothing to disk. If a host's machine
// dies, the lock stays taken until the server gives up the host's connection.
var getLockBaseline = advisory(Baseline{
	Name:    "get-lock",
	Doc:     "GET_LOCK on a connection",
	Backend: "mysql",
	Module:  "github.com/go-sql-driver/mysql",
	Open: on(mysqlserver.Dial, func(_ context.Context, db *sql.DB) (locks, error) {
		return func(name string, _ time.Duration) (load.Lock, error) {
			sum := sha256.Sum256([]byte(name)) // the server allows 64 characters, and ignores their case
			key := hex.EncodeToString(sum[:])
			return acquire(func(ctx context.Context) (load.Lease, error) { return getLock(ctx, db, key) }), nil
		}, nil
	}),
})

func getLock(ctx context.Context, db *sql.DB, name string) (load.Lease, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	ask := func(ctx context.Context, statement string) error {
		var yes sql.NullBool
		if err := conn.QueryRowContext(ctx, statement, name).Scan(&yes); err != nil {
			return err
		}
		if !yes.Bool {
			return fmt.Errorf("%w: the server refused", driver.ErrNotHeld)
		}
		return nil
	}
	// The timeout is a day and not -1 (no limit), because MariaDB with -1 does not wait at all.
	if err := ask(ctx, "SELECT GET_LOCK(?, 86400)"); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return untimed{lease{
		renew:   func(ctx context.Context) error { return lives(ask(ctx, "SELECT IS_USED_LOCK(?) = CONNECTION_ID()")) },
		release: func(ctx context.Context) error { return errors.Join(ask(ctx, "SELECT RELEASE_LOCK(?)"), conn.Close()) },
	}}, nil
}

// lives wraps a connection's error in ErrNotHeld, because the lock ends with its connection.
func lives(err error) error {
	if err == nil || errors.Is(err, driver.ErrNotHeld) {
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrNotHeld, err)
}

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
