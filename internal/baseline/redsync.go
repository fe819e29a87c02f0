package baseline

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/load"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

const redsyncModule = "github.com/go-redsync/redsync/v4"

var redsyncBaseline = Baseline{
	Name:    "redsync",
	Doc:     "go-redsync/redsync on one node, with its own retry delay",
	Backend: "redis",
	Module:  redsyncModule,
	Fencing: driver.FencingNone,
	Open: onRedis(func(c goredis.UniversalClient) locks {
		return redsyncLocks("redsync:", redsyncgoredis.NewPool(c))
	}),
}

var redsyncNodesBaseline = Baseline{
	Name:      "redsync-nodes",
	Doc:       "go-redsync/redsync on the same nodes as redlock, with its own retry delay",
	Backend:   "redlock",
	Module:    redsyncModule,
	Fencing:   driver.FencingNone,
	Reference: true,
	Open: func(_ context.Context, cfg driver.Config) (load.Locker, error) {
		nodes, err := redisserver.DialNodes(cfg)
		if err != nil {
			return nil, err
		}
		var pools []redsyncredis.Pool
		for _, c := range nodes {
			pools = append(pools, redsyncgoredis.NewPool(c))
		}
		return locker{redsyncLocks("redsync-nodes:", pools...), nodes.Close}, nil
	},
}

func redsyncLocks(prefix string, nodes ...redsyncredis.Pool) locks {
	sync := redsync.New(nodes...)
	return func(name string, ttl time.Duration) (load.Lock, error) {
		// It gives up after 32 tries unless told otherwise; here only ctx decides.
		m := sync.NewMutex(keyPrefix+prefix+name, redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt32))
		held := lease{
			renew:   func(ctx context.Context) error { return confirmed(m.ExtendContext(ctx)) },
			release: func(ctx context.Context) error { return confirmed(m.UnlockContext(ctx)) },
		}
		return acquire(func(ctx context.Context) (load.Lease, error) {
			if err := m.LockContext(ctx); err != nil {
				return nil, err
			}
			return held, nil
		}), nil
	}
}

func confirmed(ok bool, err error) error {
	if err == nil && !ok {
		return errors.New("redsync: not confirmed")
	}
	return err
}
