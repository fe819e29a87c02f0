package baseline

import (
	"context"
	"log/slog"
	"maps"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/load"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

// keyPrefix keeps the keys of baselines apart from those of backends, and from
// each other. tablePrefix is that for SQL.
const (
	keyPrefix   = "lockbench:baseline:"
	tablePrefix = "lockbench_baseline_"
)

// discard silences libraries in process: their events are measured, not read.
var discard = slog.New(slog.DiscardHandler)

// inProcess is our own library of a backend without the plugin process. Its keys
// begin with what prefix says for the configuration of the backend.
func inProcess(spec driver.Spec, prefix func(driver.Config) string) Baseline {
	return Baseline{
		Name:    spec.Name + "-in-process",
		Doc:     "our " + spec.Name + " library without the plugin process",
		Backend: spec.Name,
		Open: func(ctx context.Context, cfg driver.Config) (load.Locker, error) {
			own := maps.Clone(cfg)
			own["prefix"] = prefix(cfg)
			b, err := driver.Open(ctx, spec, own, discard)
			if err != nil {
				return nil, err
			}
			return load.NewCore(b, &core.Options{Logger: discard}), nil
		},
	}
}

// locks prepares the lock name for one caller, as [load.Locker] does.
type locks func(name string, ttl time.Duration) (load.Lock, error)

// locker is a [load.Locker] that has nothing to release.
type locker struct {
	lock  locks
	close func() error
}

func (l locker) Lock(name string, ttl time.Duration) (load.Lock, error) { return l.lock(name, ttl) }

func (l locker) Close(context.Context) error { return l.close() }

// onRedis opens what uses a client of go-redis.
func onRedis(of func(c goredis.UniversalClient) locks) func(context.Context, driver.Config) (load.Locker, error) {
	return func(_ context.Context, cfg driver.Config) (load.Locker, error) {
		c, err := redisserver.Dial(cfg)
		if err != nil {
			return nil, err
		}
		return locker{of(c), c.Close}, nil
	}
}

// acquire is a [load.Lock] of which nothing but this is known.
type acquire func(context.Context) (load.Lease, error)

func (a acquire) Acquire(ctx context.Context) (load.Lease, error) { return a(ctx) }

// lease is a [load.Lease] by the calls of its library.
type lease struct {
	token          uint64
	renew, release func(context.Context) error
}

func (l lease) Token() uint64 { return l.token }

func (l lease) Renew(ctx context.Context) error { return l.renew(ctx) }

func (l lease) Release(ctx context.Context) error { return l.release(ctx) }

// untimed is a lease that renews itself, or has no TTL; see [load.Untimed].
type untimed struct{ lease }

func (untimed) Untimed() {}
