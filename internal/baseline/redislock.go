package baseline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bsm/redislock"
	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/store"
)

// Note: v0.9.4 and not v0.10, which obtains by MSETNX and PEXPIRE and is
// slower: the faster one is the bar.
var redislockBaseline = Baseline{
	Name:      "redislock",
	Doc:       "bsm/redislock, retrying every 100 ms",
	Backend:   "redis",
	Module:    "github.com/bsm/redislock",
	Fencing:   driver.FencingNone,
	Reference: true,
	Open: func(_ context.Context, cfg driver.Config) (load.Locker, error) {
		c, err := store.DialRedis(cfg)
		if err != nil {
			return nil, err
		}
		return &redislockLocker{conn: c, client: redislock.New(c)}, nil
	},
}

type redislockLocker struct {
	conn   goredis.UniversalClient
	client *redislock.Client
}

func (l *redislockLocker) Lock(name string, ttl time.Duration) (load.Lock, error) {
	return &redislockLock{client: l.client, key: keyPrefix + "redislock:" + name, ttl: ttl}, nil
}

func (l *redislockLocker) Close(context.Context) error { return l.conn.Close() }

type redislockLock struct {
	client *redislock.Client
	key    string
	ttl    time.Duration
}

func (l *redislockLock) Acquire(ctx context.Context) (load.Lease, error) {
	return l.obtain(ctx, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
}

// TryAcquire implements load.Trier.
func (l *redislockLock) TryAcquire(ctx context.Context) (load.Lease, error) {
	lease, err := l.obtain(ctx, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		err = fmt.Errorf("%w: %w", driver.ErrHeld, err)
	}
	return lease, err
}

func (l *redislockLock) obtain(ctx context.Context, opts *redislock.Options) (load.Lease, error) {
	lock, err := l.client.Obtain(ctx, l.key, l.ttl, opts)
	if err != nil {
		return nil, err
	}
	return &redislockLease{lock: lock, ttl: l.ttl}, nil
}

type redislockLease struct {
	lock *redislock.Lock
	ttl  time.Duration
}

func (l *redislockLease) Token() uint64 { return 0 }

func (l *redislockLease) Renew(ctx context.Context) error { return l.lock.Refresh(ctx, l.ttl, nil) }

func (l *redislockLease) Release(ctx context.Context) error { return l.lock.Release(ctx) }
