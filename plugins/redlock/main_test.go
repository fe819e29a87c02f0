package redlock

import (
	"context"
	"io"
	"log/slog"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

func TestMain(m *testing.M) { plugintest.Main(m) }

// start starts nodes that do not vote yet, because new nodes are in quarantine.
func start(t testing.TB, count int, opts *redisserver.Options) servers.Nodes {
	t.Helper()
	nodes, err := redisserver.StartNodes(t.Context(), count, opts)
	if err != nil {
		servers.Missing(t, "redis", err)
	}
	t.Cleanup(func() {
		if err := nodes.Close(); err != nil {
			t.Errorf("close the nodes: %v", err)
		}
	})
	return nodes
}

// configOf returns the configuration of a host: the nodes' addresses, and more settings. If the
// test does not set max_ttl, node_timeout is 500 ms, because the tests share a busy machine.
func configOf(nodes servers.Nodes, more driver.Config) driver.Config {
	cfg := driver.Config{"address": nodes.Addr()}
	if more["max_ttl"] == "" {
		cfg["node_timeout"] = "500ms"
	}
	for key, value := range more {
		cfg[key] = value
	}
	return cfg
}

func initialise(ctx context.Context, cfg driver.Config) error {
	cfg, err := Spec.CheckConfig(cfg)
	if err != nil {
		return err
	}
	return initNodes(ctx, cfg, io.Discard)
}

func connect(t testing.TB, cfg driver.Config) *Backend {
	t.Helper()
	cfg, err := Spec.CheckConfig(cfg)
	must(t, err)
	b, err := open(optionsOf(cfg, slog.New(slog.NewTextHandler(t.Output(), nil))))
	must(t, err)
	return backendtest.CloseAfter(t, b)
}

// cluster returns five nodes that vote, and a backend on them.
func cluster(t testing.TB, more driver.Config) (servers.Nodes, *Backend) {
	t.Helper()
	nodes := start(t, 5, nil)
	cfg := configOf(nodes, more)
	must(t, initialise(t.Context(), cfg))
	b := connect(t, cfg)
	must(t, b.Check(t.Context()))
	return nodes, b
}

// plain returns an ordinary go-redis client, as another application would use.
func plain(t testing.TB, s *servers.Server) *goredis.Client {
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var (
	must       = backendtest.Must
	eventually = backendtest.Eventually
	lease      = backendtest.Request
	held       = backendtest.Held
	gone       = backendtest.NotHeld
)

const timeout = backendtest.Timeout

func acquire(t testing.TB, b *Backend, r driver.Request) driver.Request {
	t.Helper()
	if r = backendtest.Acquire(t, b, r); r.Token == 0 {
		t.Fatalf("acquire %q by %s: token 0", r.Name, r.Owner)
	}
	return r
}

// keyCount returns the number of nodes that have the lock's key. It skips stopped nodes.
func keyCount(t testing.TB, nodes servers.Nodes, key string) int {
	t.Helper()
	count := 0
	for _, s := range nodes {
		if s.Pid() == 0 {
			continue
		}
		n, err := plain(t, s).Exists(t.Context(), key).Result()
		must(t, err)
		count += int(n)
	}
	return count
}
