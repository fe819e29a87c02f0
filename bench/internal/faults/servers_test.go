package faults

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/internal/host"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// TestServerActions injects each action on servers while two hosts use locks, and then heals it.
// Some actions are operations by a store's operator. Afterwards, the servers must be healthy, serve
// both hosts, and keep no data about the hosts' locks.
func TestServerActions(t *testing.T) {
	long := os.Getenv("LOCKBENCH_LONG") != ""
	for _, of := range kinds.All() {
		played := map[string]bool{}
		for _, setting := range of.SettingNames() {
			var actions []Action
			for _, a := range slices.Concat(serverActions, drawnOperations()) {
				if !of.InHost() && a.fits(of.Name, setting) == "" && (long || !played[a.Name]) {
					actions, played[a.Name] = append(actions, a), true
				}
			}
			if len(actions) > 0 {
				t.Run(of.Name+"/"+setting, func(t *testing.T) { testServerActions(t, of, setting, actions) })
			}
		}
	}
}

func testServerActions(t *testing.T, of *servers.Kind, setting string, actions []Action) {
	t.Parallel()
	w, start := openSystem(t, of.Name, servers.Requirements{Setting: setting, Needs: []servers.Capability{servers.CapKeeps, servers.CapClock}})
	h, rival := start(t, ""), start(t, "")
	for _, a := range actions {
		t.Run(a.Name, func(t *testing.T) { testServerAction(t, w, []*Host{h, rival}, a) })
	}
	if err := w.EndBackground(); err != nil {
		t.Error(err)
	}
	closeHost(t, h)
	closeHost(t, rival)
}

func testServerAction(t *testing.T, w *System, hosts []*Host, a Action) {
	prefix := a.Name + "-"
	var err error
	for _, h := range hosts {
		err = errors.Join(err, h.Work(host.Workload{
			Kind: results.OpLock, Prefix: prefix, Names: 3, Callers: 2, TTL: 2 * time.Second,
			Limit: host.Range{timeout, timeout}, Hold: host.Range{0, 50 * time.Millisecond},
		}))
	}
	if err != nil {
		t.Fatal(err)
	}
	proc.Sleep(t.Context(), 50*time.Millisecond)
	e := Event{Action: a.Name, Lasts: Duration(min(max(a.Lasts[0], 100*time.Millisecond), 2*time.Second)), Amount: 0.9}
	if a.On == OnServer {
		e.Target = len(w.Servers) - 1
	}
	if err := a.Inject(t.Context(), w, e); err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(a.Name, "slow-") && runtime.GOOS == "linux" {
		eventually(t, "all processes of a server are frozen", func() bool {
			return !slices.ContainsFunc(proc.Family(w.Servers[0].Pid()), func(pid int) bool { return !frozen(pid) })
		})
	}
	proc.Sleep(t.Context(), time.Duration(e.Lasts))
	if a.Heal != nil {
		if err := a.Heal(t.Context(), w, e); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for _, h := range hosts {
		if err := h.Release(ctx); err != nil {
			t.Error(err)
		}
		h.Forget()
		works(t, h, "after")
	}
	if w.Shifted {
		if w.Healthy(t.Context()) == nil {
			t.Error("a clock that was moved is healthy")
		}
		if err := w.Again(t.Context()); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "the servers are healthy", func() bool {
		err = w.Healthy(t.Context())
		return err == nil
	})
	if a.Name == "mysql-restore" {
		return // the restored data contain old queues, which the documentation allows
	}
	var left []string
	eventually(t, "nothing is left", func() bool {
		left, err = w.Leftovers(t.Context(), prefix)
		return err == nil && len(left) == 0
	})
	if err != nil || len(left) > 0 {
		t.Errorf("%v; left: %q", err, left)
	}
}
