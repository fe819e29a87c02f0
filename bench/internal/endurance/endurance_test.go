// Package endurance_test tests the shipped plugin binaries on real servers. It kills hosts and
// plugins, and cancels acquire calls at random times. It repeats these tests a few times by
// default, and many times with LOCKBENCH_LONG=1.
package endurance_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/internal/host"
	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

func TestMain(m *testing.M) {
	host.Main()
	plugintest.Main(m)
}

func count(short, long int) int {
	if os.Getenv("LOCKBENCH_LONG") != "" {
		return long
	}
	return short
}

type system struct {
	*servers.Environment
	name, binary string
	config       driver.Config // configuration of the plugin
}

func each(t *testing.T, short int, f func(t *testing.T, s *system)) {
	for _, k := range served(short) {
		t.Run(k.Name, func(t *testing.T) { f(t, start(t, k)) })
	}
}

// served returns the kinds of stores with servers. In a short run, the parameter short limits them.
func served(short int) []*servers.Kind {
	all := slices.DeleteFunc(kinds.All(), (*servers.Kind).InHost)
	return all[:count(short, len(all))]
}

func start(t *testing.T, k *servers.Kind) *system {
	t.Helper()
	binary := buildPlugin(t, k.Name)
	e, err := k.Open(t.Context(), servers.Requirements{TTL: longest, Plugin: binary, Dir: t.TempDir()})
	servers.Keep(t, k.Name, e, err)
	return &system{e, k.Name, binary, e.ConfigOf(nil)}
}

// longest is the TTL of most leases. It is longer than any wait of these tests.
const longest = 30 * time.Second

func buildPlugin(t *testing.T, backend string) string {
	return plugintest.Build(t, "../../../plugins/"+backend+"/lockplugin-"+backend)
}

func acquire(t *testing.T, client *core.Client, name string) *core.Lease {
	t.Helper()
	lock, err := client.Lock(name, &core.LockOptions{TTL: longest})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := lock.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lease
}
