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
	"github.com/lockbench/lockbench/internal/store"
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
		db, err := store.DialSQL(cfg)
		if err != nil {
			return nil, err
		}
		return getLocks{db}, nil
	},
}

type getLocks struct{ db *sql.DB }

// Lock hashes the name: the server allows 64 characters, and folds their case.
func (l getLocks) Lock(name string, _ time.Duration) (load.Lock, error) {
	sum := sha256.Sum256([]byte(name))
	return &getLock{db: l.db, name: hex.EncodeToString(sum[:])}, nil
}

func (l getLocks) Close(context.Context) error { return l.db.Close() }

type getLock struct {
	db   *sql.DB
	name string
}

func (l *getLock) Acquire(ctx context.Context) (load.Lease, error) {
	conn, err := l.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	lease := &connLease{conn: conn, name: l.name}
	// A day stands for ever: MariaDB takes -1 for no time at all.
	if err := lease.ask(ctx, "SELECT GET_LOCK(?, 86400)"); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return lease, nil
}

type connLease struct {
	conn *sql.Conn
	name string
}

func (l *connLease) Token() uint64 { return 0 }

// Renew asks whether the connection still has the lock: there is no TTL. With
// the connection the lock is gone.
func (l *connLease) Renew(ctx context.Context) error {
	err := l.ask(ctx, "SELECT IS_USED_LOCK(?) = CONNECTION_ID()")
	if err != nil && !errors.Is(err, driver.ErrNotHeld) {
		err = fmt.Errorf("%w: %w", driver.ErrNotHeld, err)
	}
	return err
}

// Untimed implements load.Untimed.
func (l *connLease) Untimed() {}

func (l *connLease) Release(ctx context.Context) error {
	return errors.Join(l.ask(ctx, "SELECT RELEASE_LOCK(?)"), l.conn.Close())
}

func (l *connLease) ask(ctx context.Context, statement string) error {
	var yes sql.NullBool
	if err := l.conn.QueryRowContext(ctx, statement, l.name).Scan(&yes); err != nil {
		return err
	}
	if !yes.Bool {
		return fmt.Errorf("%w: the server says no", driver.ErrNotHeld)
	}
	return nil
}
