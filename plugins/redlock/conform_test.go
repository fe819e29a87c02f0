package redlock

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
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

type store struct{ servers.Nodes }

func newStore(t drivertest.T) store {
	t.Helper()
	nodes, err := redisserver.StartNodes(t.Context(), 5, &redisserver.Options{AppendFsync: redisserver.FsyncEverySec})
	must(t, err)
	t.Cleanup(func() { must(t, nodes.Close()) })
	s := store{nodes}
	must(t, s.admit(t.Context()))
	return s
}

// admit lets the nodes vote at once, by the command init. An operator may run init after an outage
// in which no host ran, because no node can have missed a grant.
func (s store) admit(ctx context.Context) error { return initialise(ctx, s.config("")) }

// leftovers returns the keys that a conformance case has left and that do not expire within two
// minutes. Each node may keep one key, the counter of tokens. A release reaches some nodes late, so
// leftovers waits up to 2 s until the keys are deleted.
func (s store) leftovers(t drivertest.T) []string {
	t.Helper()
	for end := time.Now().Add(2 * time.Second); ; {
		var left []string
		for _, n := range s.Nodes {
			left = append(left, keysThatStay(t, n)...)
		}
		if len(left) == 0 || time.Now().After(end) {
			return left
		}
		pause(t.Context(), 5*time.Millisecond)
	}
}

func keysThatStay(t drivertest.T, n *servers.Server) []string {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: n.Addr()})
	defer c.Close()
	var left []string
	keys := c.Scan(t.Context(), 0, "case:*", 1000).Iterator()
	for keys.Next(t.Context()) {
		ttl, err := c.PTTL(t.Context(), keys.Val()).Result()
		must(t, err)
		if keys.Val() != "case:~s:{}" && (ttl == -1 || ttl > 2*time.Minute) { // -2: expired since the scan
			left = append(left, fmt.Sprintf("%q on %s for %v", keys.Val(), n.Addr(), ttl))
		}
	}
	must(t, keys.Err())
	return left
}

// cancels returns the number of requests that the suite cancels at random, or 0 for its default.
func cancels(t testing.TB) int {
	text := os.Getenv("LOCKBENCH_REDLOCK_CANCELS")
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}

func (s store) config(prefix string) driver.Config {
	return driver.Config{"address": s.Addr(), "prefix": prefix, "node_timeout": "100ms"}
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
	t.Parallel()         // most cases wait most of the time
	_ = start(t, 1, nil) // skips without redis-server
	cancels := cancels(t)
	drivertest.Run(t, func(t drivertest.T) *drivertest.Harness {
		s := newStore(t)
		return &drivertest.Harness{
			Open:      func(t drivertest.T) driver.Backend { return opened(t, s.config("case:")) },
			Other:     func(t drivertest.T) driver.Backend { return opened(t, s.config("other:")) },
			Denied:    func(t drivertest.T) driver.Backend { return opened(t, s.denied()) },
			Store:     conform.Store(s.admit, s.Nodes...),
			Leftovers: s.leftovers,
			InProcess: true,
			Cancels:   cancels,
		}
	})
}

func TestConformance(t *testing.T) {
	t.Parallel() // most cases wait most of the time
	_ = start(t, 1, nil)
	cancels := cancels(t)
	binary := plugintest.Build(t, "./lockplugin-redlock")
	drivertest.Run(t, func(t drivertest.T) *drivertest.Harness {
		s := newStore(t)
		h := plugintest.Binary(binary, func(drivertest.T) driver.Config { return s.config("case:") })(t)
		other := plugintest.Binary(binary, func(drivertest.T) driver.Config { return s.config("other:") })(t)
		h.Denied = plugintest.Binary(binary, func(drivertest.T) driver.Config { return s.denied() })(t).Open
		h.Other, h.Store, h.Leftovers = other.Open, conform.Store(s.admit, s.Nodes...), s.leftovers
		h.Cancels = cancels
		return h
	})
}
