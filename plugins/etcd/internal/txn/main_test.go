package txn

import (
	"log/slog"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/env"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
	"github.com/lockbench/lockbench/plugins/internal/config"
)

func TestMain(m *testing.M) { plugintest.Main(m) }

var must = backendtest.Must

// at returns a Writer on the server at addr, which need not be there.
func at(t testing.TB, addr string) *Writer {
	t.Helper()
	connect := config.Connect{DialTimeout: time.Second, RequestTimeout: 3 * time.Second}
	source, err := config.NewSource(connect, false, slog.Default())
	must(t, err)
	c := cluster.New(cluster.Options{
		Address: []string{"http://" + addr}, Connect: connect, Source: source, Logger: slog.Default(), Probe: "probe",
	})
	w := New(c, "generation", func() {})
	t.Cleanup(func() {
		c.Stop()
		w.Close()
		c.Close()
	})
	return w
}

// onServer returns a Writer on a server of the test's own.
func onServer(t testing.TB) *Writer {
	t.Helper()
	s, err := env.StartEtcd(t.Context(), nil)
	if err != nil {
		env.Missing(t, "etcd", err)
	}
	t.Cleanup(func() { must(t, s.Close()) })
	return at(t, s.Addr())
}
