package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/servers"
	etcdserver "github.com/lockbench/lockbench/internal/servers/etcd"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

func TestMain(m *testing.M) { plugintest.Main(m) }

// versions runs a test on the etcd built from tools/etcd, and then on the etcd
// on the PATH, if there is one.
func versions(t *testing.T, run func(t *testing.T, binary string)) {
	t.Run("default", func(t *testing.T) { run(t, "") })
	path, err := exec.LookPath("etcd")
	if err != nil {
		return
	}
	t.Run("PATH", func(t *testing.T) { run(t, path) })
}

func start(t testing.TB, opts *etcdserver.Options) *servers.Server {
	t.Helper()
	s, err := etcdserver.Start(t.Context(), opts)
	servers.Keep(t, "etcd", s, err)
	return s
}

func connect(t testing.TB, o Options) *Backend {
	t.Helper()
	b, err := Open(&o)
	must(t, err)
	return backendtest.CloseAfter(t, b)
}

func on(s *servers.Server) Options { return Options{Address: []string{s.Addr()}} }

// plain returns an etcd client that is not part of the backend, like the client of an operator.
func plain(t testing.TB, s *servers.Server) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var (
	must       = backendtest.Must
	eventually = backendtest.Eventually
	lock       = backendtest.Request
	isNotHeld  = backendtest.NotHeld
)

const testTimeout = backendtest.Timeout

func acquire(t testing.TB, b *Backend, r driver.Request) driver.Request {
	t.Helper()
	if r = backendtest.Acquire(t, b, r); r.Token == 0 {
		t.Fatalf("acquire %q by %s: token 0", r.Name, r.Owner)
	}
	return r
}

func hosts(t *testing.T, s *servers.Server, n int) []*core.Client {
	clients := make([]*core.Client, n)
	for i := range clients {
		b, err := Open(&Options{Address: []string{s.Addr()}})
		must(t, err)
		clients[i] = core.New(b, &core.Options{Label: fmt.Sprintf("host-%d", i), Logger: slog.New(slog.DiscardHandler)})
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
			defer cancel()
			must(t, clients[i].Close(ctx))
		})
	}
	return clients
}
