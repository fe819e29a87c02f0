package baseline

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/store"
)

var redsyncBaseline = Baseline{
	Name:    "redsync",
	Doc:     "go-redsync/redsync on one node, with its own retry delay",
	Backend: "redis",
	Module:  "github.com/go-redsync/redsync/v4",
	Fencing: driver.FencingNone,
	Open: func(_ context.Context, cfg driver.Config) (load.Locker, error) {
		c, err := store.DialRedis(cfg)
		if err != nil {
			return nil, err
		}
		return &redsyncLocker{conn: c, sync: redsync.New(redsyncgoredis.NewPool(c))}, nil
	},
}

type redsyncLocker struct {
	conn goredis.UniversalClient
	sync *redsync.Redsync
}

func (l *redsyncLocker) Lock(name string, ttl time.Duration) (load.Lock, error) {
	// It gives up after 32 tries unless told otherwise; here only ctx decides.
	m := l.sync.NewMutex(keyPrefix+"redsync:"+name, redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt32))
	return redsyncLock{m}, nil
}

func (l *redsyncLocker) Close(context.Context) error { return l.conn.Close() }

type redsyncLock struct{ mutex *redsync.Mutex }

func (l redsyncLock) Acquire(ctx context.Context) (load.Lease, error) {
	if err := l.mutex.LockContext(ctx); err != nil {
		return nil, err
	}
	return redsyncLease(l), nil
}

type redsyncLease struct{ mutex *redsync.Mutex }

func (l redsyncLease) Token() uint64 { return 0 }

func (l redsyncLease) Renew(ctx context.Context) error {
	return confirmed(l.mutex.ExtendContext(ctx))
}

func (l redsyncLease) Release(ctx context.Context) error {
	return confirmed(l.mutex.UnlockContext(ctx))
}

func confirmed(ok bool, err error) error {
	if err == nil && !ok {
		return errors.New("redsync: not confirmed")
	}
	return err
}
