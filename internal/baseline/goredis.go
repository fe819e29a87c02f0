package baseline

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/load"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

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
	Open:    onRedis(func(c goredis.UniversalClient) locks { return goredisLocks(c) }),
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
		c, err := redisserver.Dial(cfg)
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
		return locker{goredisLocks(p), c.Close}, nil
	},
}

func goredisLocks(conn goredis.Cmdable) locks {
	return func(name string, ttl time.Duration) (load.Lock, error) {
		return &goredisLock{conn: conn, keys: []string{keyPrefix + "go-redis:" + name}, ttl: ttl}, nil
	}
}

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
			return lease{
				renew:   func(ctx context.Context) error { return l.run(ctx, expireIfOwner, owner, l.ttl.Milliseconds()) },
				release: func(ctx context.Context) error { return l.run(ctx, deleteIfOwner, owner) },
			}, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (l *goredisLock) run(ctx context.Context, script *goredis.Script, args ...any) error {
	n, err := script.Run(ctx, l.conn, l.keys, args...).Int()
	if err == nil && n == 0 {
		return errors.New("go-redis: the key is no longer ours")
	}
	return err
}
