// Package endurance_test repeats, in great numbers, what can go wrong with the
// shipped plugin binaries on real servers: hosts killed while they hold locks,
// acquires cancelled at random moments, plugins opened and killed. It is short
// by default; LOCKBENCH_LONG=1 runs the full counts.
package endurance_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/internal/host"
	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

func TestMain(m *testing.M) {
	host.Main()
	plugintest.Main(m)
}

// count picks between the short and the full number of rounds.
func count(short, long int) int {
	if os.Getenv("LOCKBENCH_LONG") != "" {
		return long
	}
	return short
}

// system is one backend on servers of its own.
type system struct {
	*servers.Environment
	name, binary string
	config       driver.Config // of the plugin
}

// each runs f on the servers of every backend that has some.
func each(t *testing.T, f func(t *testing.T, s *system)) {
	for _, k := range kinds.All() {
		if !k.InHost() {
			t.Run(k.Name, func(t *testing.T) { f(t, start(t, k)) })
		}
	}
}

// start starts those of one, which are closed at the end of the test.
func start(t *testing.T, k *servers.Kind) *system {
	t.Helper()
	binary := buildPlugin(t, k.Name)
	e, err := k.Open(t.Context(), servers.Requirements{TTL: longest, Plugin: binary, Dir: t.TempDir()})
	servers.Keep(t, k.Name, e, err)
	return &system{e, k.Name, binary, e.ConfigOf(nil)}
}

// longest is the TTL of most leases: longer than anything that is waited for here.
const longest = 30 * time.Second

func buildPlugin(t *testing.T, backend string) string {
	return plugintest.Build(t, "../../../plugins/"+backend+"/lockplugin-"+backend)
}

// open opens the plugin.
func (s *system) open(t *testing.T) driver.Backend {
	t.Helper()
	return plugintest.Open(t, s.name, &plugin.Options{Path: s.binary, Config: s.config})
}

// spread prints the distribution of times that must not be long.
func spread(t *testing.T, what string, times []time.Duration) {
	t.Helper()
	slices.Sort(times)
	at := func(q float64) time.Duration {
		return times[min(len(times)-1, int(q*float64(len(times))))].Round(10 * time.Microsecond)
	}
	t.Logf("%s: n=%d p50=%v p99=%v max=%v", what, len(times), at(0.5), at(0.99), at(1))
}

// TestKilledHosts kills a host that holds 50 locks with a TTL of 30 s: another
// host must get every one of them at once, and nothing else may be touched.
func TestKilledHosts(t *testing.T) {
	const locks = 50
	each(t, func(t *testing.T, s *system) {
		ctx := t.Context()
		client := core.New(s.open(t), nil)
		defer client.Close(ctx)
		bystander := acquire(t, client, "bystander")
		var times, last []time.Duration
		for round := range count(3, 50) {
			host, err := plugintest.StartHost(ctx, plugintest.HostSpec{Plugin: s.name, Path: s.binary, Config: s.config})
			if err != nil {
				t.Fatal(err)
			}
			names := make([]string, locks)
			for i := range names {
				names[i] = fmt.Sprintf("round %d lock %d", round, i)
				if _, err := host.Acquire(ctx, names[i], longest, 20*time.Second, 0); err != nil {
					t.Fatal(err)
				}
			}
			took := takeOver(t, client, host, names)
			times = append(times, took...)
			last = append(last, slices.Max(took))
		}
		if !bystander.Valid() || bystander.State() != core.Held {
			t.Errorf("a lock of another host was touched: %v", bystander.Err())
		}
		spread(t, "from the kill to each next grant", times)
		spread(t, "from the kill to the last of 50 grants", last)
		limit := 10 * time.Second // on a machine that does other things
		if os.Getenv("LOCKBENCH_LONG") != "" {
			limit = 1500 * time.Millisecond
		}
		if worst := slices.Max(times); worst > limit {
			t.Errorf("a grant came %v after the kill: the TTL is no fallback for a living plugin", worst)
		}
	})
}

// takeOver waits for every name, kills the host that holds them, and returns
// the times from the kill to the grants.
func takeOver(t *testing.T, client *core.Client, host *plugintest.HostProcess, names []string) []time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	granted := make([]time.Time, len(names))
	leases := make([]*core.Lease, len(names))
	var ready, done sync.WaitGroup
	for i, name := range names {
		ready.Add(1)
		done.Go(func() {
			lock, err := client.Lock(name, &core.LockOptions{TTL: longest})
			if err != nil {
				t.Error(err)
			}
			if _, err := lock.TryAcquire(ctx); err == nil {
				t.Errorf("%q was granted while another host held it", name)
			}
			ready.Done()
			if leases[i], err = lock.Acquire(ctx); err != nil {
				t.Errorf("%q after the kill: %v", name, err)
			}
			granted[i] = time.Now()
		})
	}
	ready.Wait()
	time.Sleep(20 * time.Millisecond) // every Acquire has begun to wait, or begins now: both count
	killed := time.Now()
	if err := host.Kill(); err != nil {
		t.Fatal(err)
	}
	done.Wait()
	var times []time.Duration
	for i, lease := range leases {
		if lease == nil {
			t.Fatalf("%q was not granted", names[i])
		}
		times = append(times, granted[i].Sub(killed))
		if err := lease.Release(ctx); err != nil {
			t.Error(err)
		}
	}
	return times
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
