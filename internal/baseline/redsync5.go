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

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/store"
	"github.com/lockbench/lockbench/plugins/redlock"
)

var redsyncNodesBaseline = Baseline{
	Name:      "redsync-nodes",
	Doc:       "go-redsync/redsync on the same nodes as redlock, with its own retry delay",
	Backend:   "redlock",
	Module:    "github.com/go-redsync/redsync/v4",
	Fencing:   driver.FencingNone,
	Reference: true,
	Open: func(_ context.Context, cfg driver.Config) (load.Locker, error) {
		l := &redsyncNodes{}
		var pools []redsyncredis.Pool
		for _, addr := range cfg.List("address") {
			node := driver.Config{"address": addr, "username": cfg["username"], "password": cfg["password"], "tls_enabled": cfg["tls_enabled"]}
			c, err := store.DialRedis(node)
			if err != nil {
				return nil, errors.Join(err, l.Close(context.Background()))
			}
			l.conns = append(l.conns, c)
			pools = append(pools, redsyncgoredis.NewPool(c))
		}
		l.sync = redsync.New(pools...)
		return l, nil
	},
}

type redsyncNodes struct {
	conns []goredis.UniversalClient
	sync  *redsync.Redsync
}

func (l *redsyncNodes) Lock(name string, ttl time.Duration) (load.Lock, error) {
	m := l.sync.NewMutex(keyPrefix+"redsync-nodes:"+name, redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt32))
	return redsyncLock{m}, nil
}

func (l *redsyncNodes) Close(context.Context) error {
	var err error
	for _, c := range l.conns {
		err = errors.Join(err, c.Close())
	}
	return err
}

var inProcessRedlock = Baseline{
	Name:    "redlock-in-process",
	Doc:     "our redlock library without the plugin process",
	Backend: "redlock",
	Open: func(ctx context.Context, cfg driver.Config) (load.Locker, error) {
		own := driver.Config{}
		for k, v := range cfg {
			own[k] = v
		}
		own["prefix"] = keyPrefix + "in-process:"
		own, err := redlock.Spec.CheckConfig(own)
		if err != nil {
			return nil, err
		}
		b, err := redlock.Spec.Open(ctx, own, discard)
		if err != nil {
			return nil, err
		}
		return load.NewCore(b, &core.Options{Logger: discard}), nil
	},
}
