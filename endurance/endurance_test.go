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

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/host"
	"github.com/lockbench/lockbench/internal/servers"
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

// system is one backend on a real server of its own.
type system struct {
	name string
	// start starts the server and returns the plugin's configuration.
	start func(t testing.TB) driver.Config
	// left lists what stays in the store under the configuration.
	left func(t *testing.T, cfg driver.Config) []string
}

// each runs f on every system, with the plugin's binary.
func each(t *testing.T, f func(t *testing.T, w system, binary string, cfg driver.Config)) {
	for _, w := range systems {
		t.Run(w.name, func(t *testing.T) {
			cfg := w.start(t)
			f(t, w, plugintest.Build(t, "../plugins/"+w.name+"/lockplugin-"+w.name), cfg)
		})
	}
}

// keep closes a server at the end of the test.
func keep(t testing.TB, name string, s *servers.Server, err error) *servers.Server {
	t.Helper()
	servers.Keep(t, name, s, err)
	return s
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
	each(t, func(t *testing.T, w system, binary string, cfg driver.Config) {
		ctx := t.Context()
		client := core.New(plugintest.Open(t, w.name, optionsOf(binary, cfg)), nil)
		defer client.Close(ctx)
		bystander := acquire(t, client, "bystander", 30*time.Second)
		var times, last []time.Duration
		for round := range count(3, 50) {
			host, err := plugintest.StartHost(ctx, plugintest.HostSpec{Plugin: w.name, Path: binary, Config: cfg})
			if err != nil {
				t.Fatal(err)
			}
			names := make([]string, locks)
			for i := range names {
				names[i] = fmt.Sprintf("round %d lock %d", round, i)
				if _, err := host.Acquire(ctx, names[i], 30*time.Second, 20*time.Second, 0); err != nil {
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
			lock, err := client.Lock(name, &core.LockOptions{TTL: 30 * time.Second})
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

func acquire(t *testing.T, client *core.Client, name string, ttl time.Duration) *core.Lease {
	t.Helper()
	lock, err := client.Lock(name, &core.LockOptions{TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := lock.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lease
}
