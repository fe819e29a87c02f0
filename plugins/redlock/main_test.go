package redlock

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/bench/env"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

func TestMain(m *testing.M) { plugintest.Main(m) }

// start starts nodes of the test's own; none of them votes yet.
func start(t testing.TB, count int, opts *env.RedisOptions) env.Nodes {
	t.Helper()
	nodes, err := env.StartRedisNodes(t.Context(), count, opts)
	if err != nil {
		env.Missing(t, "redis", err)
	}
	t.Cleanup(func() {
		if err := nodes.Close(); err != nil {
			t.Errorf("close the nodes: %v", err)
		}
	})
	return nodes
}

// config is that of a host. Nodes get more time than by default, because tests
// share their machine; a shorter max_ttl than a minute needs the default.
func config(nodes env.Nodes, more driver.Config) driver.Config {
	cfg := driver.Config{"address": nodes.Addr()}
	if more["max_ttl"] == "" {
		cfg["node_timeout"] = "200ms"
	}
	for key, value := range more {
		cfg[key] = value
	}
	return cfg
}

// initialise lets the nodes vote.
func initialise(ctx context.Context, cfg driver.Config) error {
	cfg, err := Spec.CheckConfig(cfg)
	if err != nil {
		return err
	}
	return initNodes(ctx, cfg, io.Discard)
}

// connect opens a backend and closes it when the test ends.
func connect(t testing.TB, cfg driver.Config) *Backend {
	t.Helper()
	cfg, err := Spec.CheckConfig(cfg)
	must(t, err)
	b, err := open(optionsOf(cfg), slog.New(slog.NewTextHandler(t.Output(), nil)))
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

// cluster is five nodes that vote, and a backend on them.
func cluster(t testing.TB, more driver.Config) (env.Nodes, *Backend) {
	t.Helper()
	nodes := start(t, 5, nil)
	cfg := config(nodes, more)
	must(t, initialise(t.Context(), cfg))
	b := connect(t, cfg)
	must(t, b.Check(t.Context()))
	return nodes, b
}

// plain returns a client of its own, as another application has it.
func plain(t testing.TB, s *env.Server) *goredis.Client {
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func lease(name, owner string) driver.Request {
	return driver.Request{Name: name, Owner: owner, Label: "host-1:77", TTL: 10 * time.Second}
}

// acquire acquires and returns the request with its token.
func acquire(t testing.TB, b *Backend, r driver.Request) driver.Request {
	t.Helper()
	token, err := b.TryAcquire(t.Context(), r)
	if err != nil {
		t.Fatalf("acquire %q by %s: %v", r.Name, r.Owner, err)
	}
	if token == 0 && b.fenced() {
		t.Fatalf("acquire %q by %s: token 0", r.Name, r.Owner)
	}
	r.Token = token
	return r
}

func held(t testing.TB, err error) driver.Holder {
	t.Helper()
	var e *driver.HeldError
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a HeldError", err)
	}
	return e.Holder
}

func gone(t testing.TB, err error) driver.Holder {
	t.Helper()
	var e *driver.NotHeldError
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a NotHeldError", err)
	}
	return e.Holder
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// patience bounds what a test waits for on a machine that is busy.
const patience = 30 * time.Second

// eventually polls until ok or a deadline.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("not in %v: %s", patience, what)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// keyCount is on how many of the nodes that answer the lock's key is there.
func keyCount(t testing.TB, nodes env.Nodes, key string) int {
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
