package baseline

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"time"

	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/proc"
	mysqlserver "github.com/lockbench/lockbench/internal/servers/mysql"
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
