package kinds_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/host"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

const (
	module = "github.com/lockbench/lockbench/"
	// served bounds how long a host waits for a lock when all is healed: a lease
	// that was lost has to expire.
	served = 20 * time.Second
	ttl    = 2 * time.Second
)

func TestMain(m *testing.M) {
	host.Main()
	plugintest.Main(m)
}

// openSetting starts the servers of a setting.
func openSetting(t *testing.T, backend, setting string) (e *servers.Environment, plugin string) {
	t.Helper()
	plugin = plugintest.Build(t, module+"plugins/"+backend+"/lockplugin-"+backend)
	w := servers.Requirements{Setting: setting, TTL: ttl, Plugin: plugin, Dir: t.TempDir()}
	for _, c := range []servers.Capability{servers.CapKeeps, servers.CapClock} {
		if kinds.Of(backend).Has(c) {
			w.Needs = append(w.Needs, c)
		}
	}
	e, err := kinds.Of(backend).Open(t.Context(), w)
	servers.Keep(t, backend, e, err)
	return e, plugin
}

// startHost starts the servers of a setting, and a host that uses them.
func startHost(t *testing.T, backend, setting string) (*servers.Environment, *host.Process) {
	t.Helper()
	e, plugin := openSetting(t, backend, setting)
	dir := t.TempDir()
	paths, err := e.AddPaths()
	if err != nil {
		t.Fatal(err)
	}
	process, err := host.Start(t.Context(), host.Spec{
		Backend: backend, Path: plugin, Config: e.ConfigOf(paths), Resources: host.Resources{Dir: dir}, TempDir: dir,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, process) })
	return e, process
}

func shut(t *testing.T, process *host.Process) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), served)
	defer cancel()
	if err := process.Close(ctx); err != nil {
		t.Error(err)
	}
}

// use lets a host take locks and give them back.
func use(t *testing.T, process *host.Process, prefix string) error {
	t.Helper()
	process.Forget()
	ctx, cancel := context.WithTimeout(t.Context(), served)
	defer cancel()
	const names = 2
	if err := process.Acquire(prefix, 0, names, ttl, served); err != nil {
		return err
	}
	err := process.Await(ctx, func(s host.Seen) bool { return len(s.Leases)+len(s.Failed()) >= names })
	if err != nil {
		return err
	}
	if failed := process.Seen().Failed(); len(failed) > 0 {
		return fmt.Errorf("not granted: %q", failed)
	}
	return process.Release(ctx)
}

// TestOperations: each is done and undone once while a host works, and then the
// servers are as they were, serve that host, and keep nothing of its locks.
func TestOperations(t *testing.T) {
	for _, backend := range kinds.Names() {
		for _, setting := range kinds.Of(backend).SettingNames() {
			t.Run(backend+"/"+setting, func(t *testing.T) {
				t.Parallel()
				e, process := startHost(t, backend, setting)
				if err := e.Healthy(t.Context()); err != nil {
					t.Fatalf("at the beginning: %v", err)
				}
				for i, o := range kinds.Of(backend).Operations {
					if len(o.Settings) == 0 || slices.Contains(o.Settings, setting) {
						operate(t, e, process, o, fmt.Sprintf("operations-%d-", i))
					}
				}
				count, err := e.Connections(t.Context())
				if err != nil || count == 0 && backend != "memory" {
					t.Errorf("the host has %d connections, %v", count, err)
				}
				shut(t, process)
				eventually(t, "the connections end with the host", 2*time.Second, func() error {
					if count, err := e.Connections(t.Context()); err != nil || count > 0 {
						return fmt.Errorf("%d, %w", count, err)
					}
					return nil
				})
			})
		}
	}
}

func operate(t *testing.T, e *servers.Environment, process *host.Process, o servers.Operation, prefix string) {
	t.Helper()
	began := time.Now()
	err := process.Work(host.Workload{
		Kind: host.KindLock, Prefix: prefix, Names: 4, Callers: 3, TTL: ttl, Limit: host.Range{served, served}, Hold: host.Range{0, 20 * time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	n := len(e.Setup.Servers) - 1
	if err := o.Do(t.Context(), e, n); err != nil {
		t.Errorf("%s: %v", o.Name, err)
	}
	time.Sleep(max(o.Lasts[0], 100*time.Millisecond))
	if o.Undo != nil {
		if err := o.Undo(t.Context(), e, n); err != nil {
			t.Errorf("undo %s: %v", o.Name, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), served)
	defer cancel()
	if err := process.Release(ctx); err != nil {
		t.Errorf("after %s: %v", o.Name, err)
	}
	if err := use(t, process, prefix); err != nil {
		t.Errorf("after %s: %v", o.Name, err)
	}
	if e.Shifted {
		if err := e.Again(t.Context()); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "it is healthy after "+o.Name, o.Recovers+5*time.Second, func() error { return e.Healthy(t.Context()) })
	eventually(t, "nothing is left after "+o.Name, ttl+2*time.Second, func() error {
		left, err := e.Leftovers(t.Context(), prefix)
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%q", left)
		}
		return err
	})
	t.Logf("%s took %v", o.Name, time.Since(began).Round(time.Millisecond))
}

// eventually fails the test unless do returns nil within d.
func eventually(t *testing.T, what string, d time.Duration, do func() error) {
	t.Helper()
	for deadline := time.Now().Add(d); ; time.Sleep(20 * time.Millisecond) {
		err := do()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%s: %v", what, err)
			return
		}
	}
}
