package redis

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/conform"
	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

// store is a server that only one conformance case uses.
type store struct{ *servers.Server }

func newStore(t drivertest.T) store {
	t.Helper()
	s, err := redisserver.Start(t.Context(), &redisserver.Options{AppendFsync: redisserver.FsyncAlways})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return store{s}
}

// leftovers returns the keys that a test case has left and that do not expire within two minutes.
func (s store) leftovers(t drivertest.T) []string {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	defer c.Close()
	var left []string
	keys := c.Scan(t.Context(), 0, "*", 1000).Iterator()
	for keys.Next(t.Context()) {
		ttl, err := c.PTTL(t.Context(), keys.Val()).Result()
		must(t, err)
		if ttl == -1 || ttl > 2*time.Minute { // -2: expired since the scan
			left = append(left, fmt.Sprintf("%q for %v", keys.Val(), ttl))
		}
	}
	must(t, keys.Err())
	return left
}

func (s store) config(prefix string) driver.Config {
	return driver.Config{"address": s.Addr(), "prefix": prefix}
}

func (s store) denied() driver.Config {
	cfg := s.config("case:")
	cfg["username"], cfg["password"] = "nobody", "secret"
	return cfg
}

func opened(t drivertest.T, cfg driver.Config) driver.Backend {
	t.Helper()
	cfg, err := Spec.CheckConfig(cfg)
	must(t, err)
	b, err := Spec.Open(t.Context(), cfg, slog.New(slog.DiscardHandler))
	must(t, err)
	return backendtest.CloseAfter(t, b)
}

func TestConformanceInProcess(t *testing.T) {
	backendtest.Long(t)
	t.Parallel()      // most cases wait most of the time
	_ = start(t, nil) // skips without redis-server
	drivertest.Run(t, func(t drivertest.T) *drivertest.Harness {
		s := newStore(t)
		return &drivertest.Harness{
			Open:      func(t drivertest.T) driver.Backend { return opened(t, s.config("case:")) },
			Other:     func(t drivertest.T) driver.Backend { return opened(t, s.config("other:")) },
			Denied:    func(t drivertest.T) driver.Backend { return opened(t, s.denied()) },
			Store:     conform.Store(nil, s.Server),
			Leftovers: s.leftovers,
			InProcess: true,
		}
	})
}

func TestConformanceThroughWire(t *testing.T) {
	backendtest.Long(t)
	t.Parallel() // most cases wait most of the time
	_ = start(t, nil)
	drivertest.Run(t, func(t drivertest.T) *drivertest.Harness {
		s := newStore(t)
		return &drivertest.Harness{
			Open:      func(t drivertest.T) driver.Backend { return plugintest.Loopback(t, opened(t, s.config("case:"))) },
			Other:     func(t drivertest.T) driver.Backend { return plugintest.Loopback(t, opened(t, s.config("other:"))) },
			Denied:    func(t drivertest.T) driver.Backend { return plugintest.Loopback(t, opened(t, s.denied())) },
			Store:     conform.Store(nil, s.Server),
			Leftovers: s.leftovers,
			InProcess: true,
		}
	})
}

func TestConformance(t *testing.T) {
	t.Parallel() // most cases wait most of the time
	_ = start(t, nil)
	binary := plugintest.Build(t, "./lockplugin-redis")
	drivertest.Run(t, func(t drivertest.T) *drivertest.Harness {
		s := newStore(t)
		h := plugintest.Binary(binary, func(drivertest.T) driver.Config { return s.config("case:") })(t)
		other := plugintest.Binary(binary, func(drivertest.T) driver.Config { return s.config("other:") })(t)
		h.Denied = plugintest.Binary(binary, func(drivertest.T) driver.Config { return s.denied() })(t).Open
		h.Other, h.Store, h.Leftovers = other.Open, conform.Store(nil, s.Server), s.leftovers
		return h
	})
}
