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
	Open: onMySQL(func(ctx context.Context, db *sql.DB) (locks, error) {
		_, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS "+leaseTable+
			" (name VARBINARY(512) NOT NULL PRIMARY KEY, owner VARCHAR(64) NOT NULL, expires_at DATETIME(6) NOT NULL) ENGINE=InnoDB")
		return func(name string, ttl time.Duration) (load.Lock, error) {
			return &leaseRow{ttl: ttl, statements: mysqlLeaseRow{db, []byte(name)}}, nil
		}, err
	}),
}

const (
	leaseTable = tablePrefix + "lease_row"
	leasePoll  = 10 * time.Millisecond

	leaseAcquire = "INSERT INTO " + leaseTable + " (name, owner, expires_at) VALUES (?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND)" +
		" ON DUPLICATE KEY UPDATE owner = IF(expires_at < UTC_TIMESTAMP(6), VALUES(owner), owner)," +
		" expires_at = IF(owner = VALUES(owner), VALUES(expires_at), expires_at)"
	leaseRenew   = "UPDATE " + leaseTable + " SET expires_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND WHERE name = ? AND owner = ? AND expires_at > UTC_TIMESTAMP(6)"
	leaseRelease = "UPDATE " + leaseTable + " SET expires_at = '1970-01-01' WHERE name = ? AND owner = ?"
)

type leaseRow struct {
	statements leaseStatements
	ttl        time.Duration
}

// leaseStatements has the SQL statements on one row. Each reports whether it changed the row.
type leaseStatements interface {
	acquire(ctx context.Context, owner string, ttl time.Duration) (bool, error)
	renew(ctx context.Context, owner string, ttl time.Duration) (bool, error)
	release(ctx context.Context, owner string) (bool, error)
}

func (l *leaseRow) Acquire(ctx context.Context) (load.Lease, error) {
	for {
		lease, err := l.TryAcquire(ctx)
		if !errors.Is(err, driver.ErrHeld) {
			return lease, err
		}
		pause := time.NewTimer(leasePoll/2 + mrand.N(leasePoll))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
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
		renew:   func(ctx context.Context) error { return there(l.statements.renew(ctx, owner, l.ttl)) },
		release: func(ctx context.Context) error { return there(l.statements.release(ctx, owner)) },
	}
	changed, err := l.statements.acquire(whole, owner, l.ttl)
	switch {
	case err != nil:
		return nil, err
	case !changed:
		return nil, driver.ErrHeld
	case ctx.Err() != nil:
		return nil, errors.Join(ctx.Err(), held.release(whole))
	}
	return held, nil
}

// there returns ErrNotHeld if a statement changed no row, because the lease has then ended.
func there(changed bool, err error) error {
	if err == nil && !changed {
		return driver.ErrNotHeld
	}
	return err
}

type mysqlLeaseRow struct {
	db   *sql.DB
	name []byte
}

func (l mysqlLeaseRow) acquire(ctx context.Context, owner string, ttl time.Duration) (bool, error) {
	return l.exec(ctx, leaseAcquire, l.name, owner, ttl.Microseconds())
}

func (l mysqlLeaseRow) renew(ctx context.Context, owner string, ttl time.Duration) (bool, error) {
	return l.exec(ctx, leaseRenew, ttl.Microseconds(), l.name, owner)
}

func (l mysqlLeaseRow) release(ctx context.Context, owner string) (bool, error) {
	return l.exec(ctx, leaseRelease, l.name, owner)
}

func (l mysqlLeaseRow) exec(ctx context.Context, statement string, args ...any) (changed bool, err error) {
	result, err := l.db.ExecContext(ctx, statement, args...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

// getLockBaseline is MySQL's advisory lock, which has no TTL and ends with its connection. To take
// the lock costs only a round trip, because the server writes nothing to disk. If a host's machine
// dies, the lock stays taken until the server gives up the host's connection.
var getLockBaseline = Baseline{
	Name:     "get-lock",
	Doc:      "GET_LOCK on a connection for each lease; no TTL, no token, nothing written",
	Backend:  "mysql",
	Module:   "github.com/go-sql-driver/mysql",
	NoTokens: true,
	Renews:   true, // it has no TTL
	Frees:    true, // its connection ends with the host
	Open: onMySQL(func(_ context.Context, db *sql.DB) (locks, error) {
		return func(name string, _ time.Duration) (load.Lock, error) {
			sum := sha256.Sum256([]byte(name)) // the server allows 64 characters, and ignores their case
			key := hex.EncodeToString(sum[:])
			return acquire(func(ctx context.Context) (load.Lease, error) { return getLock(ctx, db, key) }), nil
		}, nil
	}),
}

// onMySQL returns an Open function that connects a database. The given function makes the locks.
func onMySQL(of func(context.Context, *sql.DB) (locks, error)) func(context.Context, driver.Config) (load.Locker, error) {
	return func(ctx context.Context, cfg driver.Config) (load.Locker, error) {
		db, err := mysqlserver.Dial(cfg)
		if err != nil {
			return nil, err
		}
		prepare, err := of(ctx, db)
		if err != nil {
			return nil, errors.Join(err, db.Close())
		}
		return locker{prepare, db.Close}, nil
	}
}

func getLock(ctx context.Context, db *sql.DB, name string) (load.Lease, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	held := connLease{conn, name}
	// The timeout is a day and not -1 (no limit), because MariaDB with -1 does not wait at all.
	if err := held.ask(ctx, "SELECT GET_LOCK(?, 86400)"); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return untimed{lease{renew: held.renew, release: held.release}}, nil
}

type connLease struct {
	conn *sql.Conn
	name string
}

// renew asks the server whether the connection still has the lock.
func (l connLease) renew(ctx context.Context) error {
	err := l.ask(ctx, "SELECT IS_USED_LOCK(?) = CONNECTION_ID()")
	if err != nil && !errors.Is(err, driver.ErrNotHeld) {
		err = fmt.Errorf("%w: %w", driver.ErrNotHeld, err)
	}
	return err
}

func (l connLease) release(ctx context.Context) error {
	return errors.Join(l.ask(ctx, "SELECT RELEASE_LOCK(?)"), l.conn.Close())
}

func (l connLease) ask(ctx context.Context, statement string) error {
	var yes sql.NullBool
	if err := l.conn.QueryRowContext(ctx, statement, l.name).Scan(&yes); err != nil {
		return err
	}
	if !yes.Bool {
		return fmt.Errorf("%w: the server refused", driver.ErrNotHeld)
	}
	return nil
}
