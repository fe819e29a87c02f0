package baseline

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/load"
)

var rueidislockBaseline = Baseline{
	Name:    "rueidislock",
	Doc:     "redis/rueidis/rueidislock with one key a lock, woken by client-side caching",
	Backend: "redis",
	Module:  "github.com/redis/rueidis",
	Fencing: driver.FencingNone,
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

// rueidisLocker has one locker for each TTL, which is a setting of the locker.
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
	return rueidisLock{locker, name}, nil
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

type rueidisLock struct {
	locker rueidislock.Locker
	name   string
}

func (l rueidisLock) Acquire(ctx context.Context) (load.Lease, error) {
	held, release, err := l.locker.WithContext(ctx, l.name)
	if err != nil {
		return nil, err
	}
	return rueidisLease{held, release}, nil
}

type rueidisLease struct {
	held    context.Context // ends with the lease
	release context.CancelFunc
}

func (l rueidisLease) Token() uint64 { return 0 }

// Renew only looks: the library renews by itself, at half the TTL.
func (l rueidisLease) Renew(context.Context) error { return l.held.Err() }

// Untimed implements load.Untimed.
func (l rueidisLease) Untimed() {}

// Release returns when the key is deleted.
func (l rueidisLease) Release(context.Context) error {
	l.release()
	return nil
}
