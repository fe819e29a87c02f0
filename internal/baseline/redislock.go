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
	Open: onRedis(func(c goredis.UniversalClient) locks {
		client := redislock.New(c)
		return func(name string, ttl time.Duration) (load.Lock, error) {
			return &redislockLock{client: client, key: keyPrefix + "redislock:" + name, ttl: ttl}, nil
		}
	}),
}

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
	held, err := l.client.Obtain(ctx, l.key, l.ttl, opts)
	if err != nil {
		return nil, err
	}
	return lease{renew: func(ctx context.Context) error { return held.Refresh(ctx, l.ttl, nil) }, release: held.Release}, nil
}
