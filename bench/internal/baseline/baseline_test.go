package baseline

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

func TestMain(m *testing.M) { plugintest.Main(m) }

func TestBaselines(t *testing.T) {
	s, err := redisserver.Start(t.Context(), &redisserver.Options{Password: "hush"})
	servers.Keep(t, "redis", s, err)
	plain := driver.Config{"address": s.Addr(), "password": "hush"}
	url := driver.Config{"address": "redis://:hush@" + s.Addr() + "/0"}
	testExclusion(t, "redis", plain, url)
}

// TestNoTTL checks that a lock without a TTL, which ends with its connection, lacks only a token.
func TestNoTTL(t *testing.T) {
	for _, bl := range All() {
		if lacks := bl.Without(); strings.Contains(bl.Doc, "no TTL") && !slices.Equal(lacks, []string{"token"}) {
			t.Errorf("%s lacks %v", bl.Name, lacks)
		}
	}
}

// testExclusion checks that no two callers hold the same lock at the same time. The first caller
// uses the configuration plain. The second uses the configuration url of the same server.
func testExclusion(t *testing.T, backend string, plain, url driver.Config) {
	t.Helper()
	for _, bl := range All() {
		if bl.Backend == backend {
			t.Run(bl.Name, func(t *testing.T) { excludes(t, bl, plain, url) })
		}
	}
}

func excludes(t *testing.T, bl Baseline, plain, url driver.Config) {
	a, b := openLock(t, bl, plain), openLock(t, bl, url)
	lease, err := a.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if (lease.Token() == 0) != bl.NoTokens {
		t.Errorf("token %d, without tokens: %t", lease.Token(), bl.NoTokens)
	}
	if err := lease.Renew(t.Context()); err != nil {
		t.Errorf("renew: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if second, err := b.Acquire(short); err == nil {
		t.Errorf("granted twice: %v", second)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
	if err := lease.Renew(t.Context()); err == nil {
		t.Error("renewed what was released")
	}
	next, err := b.Acquire(t.Context())
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	if err := next.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func opened(t *testing.T, bl Baseline, cfg driver.Config) load.Locker {
	t.Helper()
	l, err := bl.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return l
}

func openLock(t *testing.T, bl Baseline, cfg driver.Config) load.Lock {
	t.Helper()
	lock, err := opened(t, bl, cfg).Lock("jobs", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

func TestBaselinesOnNodes(t *testing.T) {
	nodes, err := redisserver.StartNodes(t.Context(), 5, &redisserver.Options{Password: "hush"})
	servers.Keep(t, "redis", nodes, err)
	plugin := plugintest.Build(t, "../../../plugins/redlock/lockplugin-redlock")
	if err := servers.Init(t.Context(), plugin, "password=hush", "address="+nodes.Addr()); err != nil {
		t.Fatal(err)
	}
	cfg := driver.Config{"address": nodes.Addr(), "password": "hush", "node_timeout": "300ms"} // the timeout suits a busy machine
	testExclusion(t, "redlock", cfg, cfg)
}
