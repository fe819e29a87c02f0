package baseline

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/proc"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

var (
	deleteIfOwner = goredis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)
	expireIfOwner = goredis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("pexpire", KEYS[1], ARGV[2]) end return 0`)
)

var goredisBaseline = Baseline{
	Name:     "go-redis",
	Doc:      "the bare client: SET NX PX and EVALSHA, retrying every 10 ms",
	Backend:  "redis",
	Module:   "github.com/redis/go-redis/v9",
	NoTokens: true,
	Open: on(redisserver.Dial, func(_ context.Context, c goredis.UniversalClient) (locks, error) {
		return goredisLocks(c), nil
	}),
}

// pipelinedBaseline sends the requests of concurrent callers together. It has no tokens and no
// plugin process, so it shows the highest speed that a client could reach.
var pipelinedBaseline = Baseline{
	Name:     "go-redis-pipelined",
	Doc:      "the bare client, which sends what callers ask for at the same time in one pipeline",
	Backend:  "redis",
	Module:   "github.com/redis/go-redis/v9",
	NoTokens: true,
	Open: on(redisserver.Dial, func(_ context.Context, c goredis.UniversalClient) (locks, error) {
		pipelines, ok := c.(interface {
			AutoPipeline() (*goredis.AutoPipeliner, error)
		})
		if !ok {
			return nil, fmt.Errorf("go-redis-pipelined: a %T has no pipelines of its own", c)
		}
		p, err := pipelines.AutoPipeline()
		return goredisLocks(p), err
	}),
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
		if !proc.Sleep(ctx, leasePoll) {
			return nil, ctx.Err()
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

// Note: keep version v0.9.4 of this library, because it is faster. Version v0.10 acquires with two
// commands, MSETNX and PEXPIRE.
var redislockBaseline = Baseline{
	Name:      "redislock",
	Doc:       "bsm/redislock, retrying every 100 ms",
	Backend:   "redis",
	Module:    "github.com/bsm/redislock",
	NoTokens:  true,
	Reference: true,
	Open: on(redisserver.Dial, func(_ context.Context, c goredis.UniversalClient) (locks, error) {
		client := redislock.New(c)
		return func(name string, ttl time.Duration) (load.Lock, error) {
			return &redislockLock{client: client, key: keyPrefix + "redislock:" + name, ttl: ttl}, nil
		}, nil
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

const redsyncModule = "github.com/go-redsync/redsync/v4"

var redsyncBaseline = Baseline{
	Name:     "redsync",
	Doc:      "go-redsync/redsync on one node, with its own retry delay",
	Backend:  "redis",
	Module:   redsyncModule,
	NoTokens: true,
	Open: on(redisserver.Dial, func(_ context.Context, c goredis.UniversalClient) (locks, error) {
		return redsyncLocks("redsync:", c), nil
	}),
}

var redsyncNodesBaseline = Baseline{
	Name:      "redsync-nodes",
	Doc:       "go-redsync/redsync on the same nodes as redlock, with its own retry delay",
	Backend:   "redlock",
	Module:    redsyncModule,
	NoTokens:  true,
	Reference: true,
	Open: on(redisserver.DialNodes, func(_ context.Context, nodes redisserver.Clients) (locks, error) {
		return redsyncLocks("redsync-nodes:", nodes...), nil
	}),
}

func redsyncLocks(prefix string, nodes ...goredis.UniversalClient) locks {
	var pools []redsyncredis.Pool
	for _, c := range nodes {
		pools = append(pools, redsyncgoredis.NewPool(c))
	}
	sync := redsync.New(pools...)
	return func(name string, ttl time.Duration) (load.Lock, error) {
		// The library would give up after 32 tries. With this option, only the end of ctx ends the wait.
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

var rueidislockBaseline = Baseline{
	Name:     "rueidislock",
	Doc:      "redis/rueidis/rueidislock with one key a lock, woken by client-side caching",
	Backend:  "redis",
	Module:   "github.com/redis/rueidis",
	NoTokens: true,
	Renews:   true,
	Open: func(_ context.Context, cfg driver.Config) (load.Locker, error) {
		o, err := rueidisOption(cfg)
		if err != nil {
			return nil, err
		}
		return &rueidisLocker{option: o, lockers: map[time.Duration]rueidislock.Locker{}}, nil
	},
}

func rueidisOption(cfg driver.Config) (rueidis.ClientOption, error) {
	addrs := cfg.List("address")
	o := rueidis.ClientOption{InitAddress: addrs}
	if len(addrs) == 1 && strings.Contains(addrs[0], "://") {
		var err error
		if o, err = rueidis.ParseURL(addrs[0]); err != nil {
			return o, errors.New("baseline: the address is no Redis URL that rueidis reads")
		}
	}
	if cfg["username"] != "" {
		o.Username = cfg["username"]
	}
	if cfg["password"] != "" {
		o.Password = cfg["password"]
	}
	if cfg.Bool("tls_enabled") && o.TLSConfig == nil {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return o, nil
}

// rueidisLocker has one locker of the library for each TTL, because a locker has a fixed TTL.
type rueidisLocker struct {
	option rueidis.ClientOption

	mu      sync.Mutex
	lockers map[time.Duration]rueidislock.Locker
}

func (l *rueidisLocker) Lock(name string, ttl time.Duration) (load.Lock, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	locker := l.lockers[ttl]
	if locker == nil {
		var err error
		locker, err = rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: l.option, KeyPrefix: keyPrefix + "rueidislock", KeyValidity: ttl,
			KeyMajority: 1, NoLoopTracking: true,
		})
		if err != nil {
			return nil, fmt.Errorf("baseline: rueidislock: %w", err)
		}
		l.lockers[ttl] = locker
	}
	return acquire(func(ctx context.Context) (load.Lease, error) {
		held, release, err := locker.WithContext(ctx, name)
		if err != nil {
			return nil, err
		}
		return untimed{lease{
			// The library renews the lease by itself, and cancels the context in held when the lease ends.
			renew: func(context.Context) error { return held.Err() },
			// The library's release returns when the key is deleted.
			release: func(context.Context) error {
				release()
				return nil
			},
		}}, nil
	}), nil
}

func (l *rueidisLocker) Close(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, locker := range l.lockers {
		locker.Close()
	}
	l.lockers = nil
	return nil
}
