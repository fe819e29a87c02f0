package baseline

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/load"
	mysqlserver "github.com/lockbench/lockbench/internal/servers/mysql"
)

// getLockBaseline is the server's own advisory lock. It lives as long as its
// connection, without a TTL: nothing is written, so it is as fast as a trip,
// and a lost machine keeps it until the server gives the connection up.
var getLockBaseline = Baseline{
	Name:    "get-lock",
	Doc:     "GET_LOCK on a connection for each lease; no TTL, no token, nothing written",
	Backend: "mysql",
	Module:  "github.com/go-sql-driver/mysql",
	Fencing: driver.FencingNone,
	Open: func(_ context.Context, cfg driver.Config) (load.Locker, error) {
		db, err := mysqlserver.Dial(cfg)
		if err != nil {
			return nil, err
		}
		return locker{getLocks(db), db.Close}, nil
	},
}

// getLocks hashes the names: the server allows 64 characters, and folds their case.
func getLocks(db *sql.DB) locks {
	return func(name string, _ time.Duration) (load.Lock, error) {
		sum := sha256.Sum256([]byte(name))
		key := hex.EncodeToString(sum[:])
		return acquire(func(ctx context.Context) (load.Lease, error) { return getLock(ctx, db, key) }), nil
	}
}

func getLock(ctx context.Context, db *sql.DB, name string) (load.Lease, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	held := connLease{conn, name}
	// A day stands for ever: MariaDB takes -1 for no time at all.
	if err := held.ask(ctx, "SELECT GET_LOCK(?, 86400)"); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return untimed{lease{renew: held.renew, release: held.release}}, nil
}

type connLease struct {
	conn *sql.Conn
	name string
}

// renew asks whether the connection still has the lock: there is no TTL. With
// the connection the lock is gone.
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
		return fmt.Errorf("%w: the server says no", driver.ErrNotHeld)
	}
	return nil
}
