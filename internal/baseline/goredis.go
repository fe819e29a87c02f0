package baseline

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/store"
)

// discard silences libraries in process: their events are measured, not read.
var discard = slog.New(slog.DiscardHandler)

var (
	deleteIfOwner = goredis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)
	expireIfOwner = goredis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) end return 0`)
)

var goredisBaseline = Baseline{
	Name:    "go-redis",
	Doc:     "the bare client: SET NX PX and EVALSHA, retrying every 10 ms",
	Backend: "redis",
	Module:  "github.com/redis/go-redis/v9",
	Fencing: driver.FencingNone,
	Open: func(_ context.Context, cfg driver.Config) (load.Locker, error) {
		c, err := store.DialRedis(cfg)
		if err != nil {
			return nil, err
		}
		return goredisLocker{c, c}, nil
	},
}

// pipelinedBaseline shows what batching gives without a process in between and
// without tokens: the most that a client can have.
var pipelinedBaseline = Baseline{
	Name:    "go-redis-pipelined",
	Doc:     "the bare client, which sends what callers ask for at the same time in one pipeline",
	Backend: "redis",
	Module:  "github.com/redis/go-redis/v9",
	Fencing: driver.FencingNone,
	Open: func(_ context.Context, cfg driver.Config) (load.Locker, error) {
		c, err := store.DialRedis(cfg)
		if err != nil {
			return nil, err
		}
		pipelines, ok := c.(interface {
			AutoPipeline() (*goredis.AutoPipeliner, error)
		})
		if !ok {
			return nil, errors.Join(fmt.Errorf("go-redis-pipelined: a %T has no pipelines of its own", c), c.Close())
		}
		p, err := pipelines.AutoPipeline()
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		return goredisLocker{p, c}, nil
	},
}

type goredisLocker struct {
	conn   goredis.Cmdable
	client goredis.UniversalClient
}

func (l goredisLocker) Lock(name string, ttl time.Duration) (load.Lock, error) {
	return &goredisLock{conn: l.conn, keys: []string{keyPrefix + "go-redis:" + name}, ttl: ttl}, nil
}

func (l goredisLocker) Close(context.Context) error { return l.client.Close() }

type goredisLock struct {
	conn goredis.Cmdable
	keys []string
	ttl  time.Duration
}

func (l *goredisLock) Acquire(ctx context.Context) (load.Lease, error) {
	owner := rand.Text()
	for {
		ok, err := l.conn.SetNX(ctx, l.keys[0], owner, l.ttl).Result()
		if err != nil {
			return nil, err
		}
		if ok {
			return &goredisLease{lock: l, owner: owner}, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

type goredisLease struct {
	lock  *goredisLock
	owner string
}

func (l *goredisLease) Token() uint64 { return 0 }

func (l *goredisLease) Renew(ctx context.Context) error {
	return l.run(ctx, expireIfOwner, l.owner, l.lock.ttl.Milliseconds())
}

func (l *goredisLease) Release(ctx context.Context) error {
	return l.run(ctx, deleteIfOwner, l.owner)
}

func (l *goredisLease) run(ctx context.Context, script *goredis.Script, args ...any) error {
	n, err := script.Run(ctx, l.lock.conn, l.lock.keys, args...).Int()
	if err == nil && n == 0 {
		return errors.New("go-redis: the key is no longer ours")
	}
	return err
}
