package txn

import (
	"context"
	"testing"

	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/servers"
	etcdserver "github.com/lockbench/lockbench/internal/servers/etcd"
	"github.com/lockbench/lockbench/plugins/etcd/internal/clustertest"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

func TestMain(m *testing.M) { plugintest.Main(m) }

var must = backendtest.Must

// at returns a Writer. The server at addr need not exist.
func at(t testing.TB, addr string) *Writer {
	t.Helper()
	w := New(clustertest.At(t, addr), "generation", func() {})
	t.Cleanup(func() { _ = w.cluster.Close(context.Background(), w.Close) })
	return w
}

func onServer(t testing.TB) *Writer {
	t.Helper()
	s, err := etcdserver.Start(t.Context(), nil)
	servers.Keep(t, "etcd", s, err)
	return at(t, "http://"+s.Addr())
}
