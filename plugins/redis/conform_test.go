package redis

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/bench/env"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

// store is a server for one case.
type store struct{ *env.Server }

func newStore(t drivertest.T) store {
	t.Helper()
	s, err := env.StartRedis(t.Context(), &env.RedisOptions{AppendFsync: env.FsyncAlways})
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("%v", err)
		}
	})
	return store{s}
}

func (s store) Stop(t drivertest.T)   { check(t, s.Server.Stop()) }
func (s store) Freeze(t drivertest.T) { check(t, s.Server.Freeze()) }
func (s store) Resume(t drivertest.T) { check(t, s.Server.Resume()) }
func (s store) Start(t drivertest.T, keepData bool) {
	check(t, s.Server.Start(t.Context(), keepData))
}

func check(t drivertest.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// leftovers are the keys that do not go away in two minutes. The control hash
// is one for all names.
func (s store) leftovers(t drivertest.T) []string {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	defer c.Close()
	var left []string
	keys := c.Scan(t.Context(), 0, "*", 1000).Iterator()
	for keys.Next(t.Context()) {
		ttl, err := c.PTTL(t.Context(), keys.Val()).Result()
		check(t, err)
		if keys.Val() != "case:~c:{}" && (ttl < 0 || ttl > 2*time.Minute) {
			left = append(left, fmt.Sprintf("%q for %v", keys.Val(), ttl))
		}
	}
	check(t, keys.Err())
	return left
}

func (s store) config(prefix string) driver.Config {
	return driver.Config{"address": s.Addr(), "prefix": prefix}
}

func (s store) open(t drivertest.T, prefix string) driver.Backend {
	t.Helper()
	cfg, err := Spec.CheckConfig(s.config(prefix))
	check(t, err)
	b, err := Spec.Open(t.Context(), cfg, slog.New(slog.DiscardHandler))
	check(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

func TestConformance(t *testing.T) {
	t.Parallel()      // most cases wait most of the time
	_ = start(t, nil) // skips without redis-server
	drivertest.Run(t, func(t drivertest.T) *drivertest.Harness {
		s := newStore(t)
		return &drivertest.Harness{
			Open:      func(t drivertest.T) driver.Backend { return s.open(t, "case:") },
			Other:     func(t drivertest.T) driver.Backend { return s.open(t, "other:") },
			Store:     s,
			Leftovers: s.leftovers,
			InProcess: true,
		}
	})
}

func TestConformanceThroughWire(t *testing.T) {
	t.Parallel() // most cases wait most of the time
	_ = start(t, nil)
	drivertest.Run(t, func(t drivertest.T) *drivertest.Harness {
		s := newStore(t)
		return &drivertest.Harness{
			Open:      func(t drivertest.T) driver.Backend { return plugintest.Loopback(t, s.open(t, "case:")) },
			Other:     func(t drivertest.T) driver.Backend { return plugintest.Loopback(t, s.open(t, "other:")) },
			Store:     s,
			Leftovers: s.leftovers,
			InProcess: true,
		}
	})
}

func TestConformanceOfPlugin(t *testing.T) {
	t.Parallel() // most cases wait most of the time
	_ = start(t, nil)
	binary := plugintest.Build(t, "./lockplugin-redis")
	drivertest.Run(t, func(t drivertest.T) *drivertest.Harness {
		s := newStore(t)
		h := plugintest.Binary(binary, func(drivertest.T) driver.Config { return s.config("case:") })(t)
		other := plugintest.Binary(binary, func(drivertest.T) driver.Config { return s.config("other:") })(t)
		h.Other, h.Store, h.Leftovers = other.Open, s, s.leftovers
		return h
	})
}
