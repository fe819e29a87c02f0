package redis

import (
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

func TestMain(m *testing.M) { plugintest.Main(m) }

func start(t testing.TB, opts *redisserver.Options) *servers.Server {
	t.Helper()
	s, err := redisserver.Start(t.Context(), opts)
	servers.Keep(t, "redis", s, err)
	return s
}

func connect(t testing.TB, o Options) *Backend {
	t.Helper()
	b, err := Open(&o)
	must(t, err)
	return backendtest.CloseAfter(t, b)
}

func at(s *servers.Server) Options { return Options{Address: []string{s.Addr()}} }

// plain returns an ordinary go-redis client, as another application would use.
func plain(t testing.TB, s *servers.Server) *goredis.Client {
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var (
	must       = backendtest.Must
	eventually = backendtest.Eventually
	lease      = backendtest.Request
	held       = backendtest.Held
	notHeld    = backendtest.NotHeld
)

const timeout = backendtest.Timeout

func acquire(t testing.TB, b *Backend, r driver.Request) driver.Request {
	t.Helper()
	if r = backendtest.Acquire(t, b, r); r.Token == 0 {
		t.Fatalf("acquire %q by %s: token 0", r.Name, r.Owner)
	}
	return r
}
