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
	return acquire(func(ctx context.Context) (load.Lease, error) {
		held, release, err := locker.WithContext(ctx, name)
		if err != nil {
			return nil, err
		}
		return untimed{lease{
			// The library renews by itself, at half the TTL; held ends with the lease.
			renew: func(context.Context) error { return held.Err() },
			// It returns when the key is deleted.
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
