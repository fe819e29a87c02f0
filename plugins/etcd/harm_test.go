package etcd

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

// Harm to the processes of the first waiter, just before the release: the second
// one has the lock, after a first span and the server's delay at most, and after it the
// first one, if it lives.
func TestHarmToAWaiter(t *testing.T) {
	s := start(t, nil)
	binary := plugintest.Build(t, "./lockplugin-etcd")
	h := plugintest.Binary(binary, func(drivertest.T) driver.Config { return driver.Config{"address": s.Addr()} })(t)
	b := connect(t, on(s))
	// A plugin that was frozen may have been killed by its host meanwhile.
	goOn := func(pid int) { _ = syscall.Kill(pid, syscall.SIGCONT) }
	for i, harm := range []struct {
		what string
		do   func(t *testing.T, host drivertest.Host) (heal func())
	}{
		{"frozen host", func(t *testing.T, host drivertest.Host) func() {
			host.Freeze(t)
			return func() { host.Resume(t) }
		}},
		{"frozen plugin", func(t *testing.T, host drivertest.Host) func() {
			plugin := host.Plugin()
			plugin.Freeze(t)
			return func() { goOn(plugin.Pid()) }
		}},
		{"frozen host and plugin", func(t *testing.T, host drivertest.Host) func() {
			plugin := host.Plugin()
			host.Freeze(t)
			plugin.Freeze(t)
			return func() { goOn(plugin.Pid()); host.Resume(t) }
		}},
		{"killed host and plugin", func(t *testing.T, host drivertest.Host) func() {
			plugin := host.Plugin()
			host.Freeze(t)
			plugin.Kill(t)
			host.Kill(t)
			return nil
		}},
	} {
		t.Run(harm.what, func(t *testing.T) {
			name := fmt.Sprint("lock", i)
			holder := acquire(t, b, lock(name, "holder-"+name))
			first, second := h.Host(t, 0), h.Host(t, 0)
			for n, host := range []drivertest.Host{first, second} {
				host.Enqueue(t, name, 10*time.Second)
				eventually(t, "in the queue", func() bool {
					at, err := b.Inspect(t.Context(), name)
					return err == nil && at.Waiters == n+1
				})
			}
			has := func(host drivertest.Host) func() bool {
				return func() bool {
					at, err := b.Inspect(t.Context(), name)
					must(t, err)
					return strings.HasSuffix(at.Label, fmt.Sprint(":", host.Pid())) && at.TTL > entryFor
				}
			}
			heal := harm.do(t, first)
			released := time.Now()
			must(t, b.Release(t.Context(), holder))
			eventually(t, "the second has it", has(second))
			t.Logf("granted to the second after %v", time.Since(released))
			if heal != nil {
				heal()
			}
			// A lease that it believes to have and has not would be no release.
			releases := func(host drivertest.Host) func() bool {
				return func() bool { return host.Release(t, name) == nil }
			}
			eventually(t, "the second knows, and releases", releases(second))
			if heal == nil {
				acquire(t, b, lock(name, "last-"+name))
				return
			}
			eventually(t, "then the first has it", has(first))
			eventually(t, "the first knows, and releases", releases(first))
		})
	}
}

// The connections of a waiter are cut, or the store is paused, between the release and
// what tells of it. Who is told in time has the lock from the queue; who is not asks, and
// never is a grant longer than what the store keeps.
func TestWatchLostAtTheRelease(t *testing.T) {
	s := start(t, nil)
	p, err := inject.NewProxy(s.Addr())
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	other := connect(t, on(s))
	for what, harm := range map[string]func() (heal func()){
		"cut": func() func() { must(t, p.Cut()); return func() {} },
		"paused": func() func() {
			must(t, s.Freeze())
			return func() { must(t, s.Resume()) }
		},
	} {
		t.Run(what, func(t *testing.T) {
			b := connect(t, Options{Address: []string{p.Addr()}})
			holder, r := acquire(t, other, lock(what, "first")), lock(what, "next")
			got := make(chan driver.Grant, 1)
			go func() {
				g, err := b.Wait(t.Context(), r, 20*time.Second)
				if err != nil && !errors.Is(err, driver.ErrUnavailable) { // a cut request
					t.Error(err)
				}
				got <- g
			}()
			eventually(t, "it waits", func() bool {
				h, err := other.Inspect(t.Context(), what)
				return err == nil && h.Waiters == 1
			})
			released := make(chan error, 1)
			go func() { released <- other.Release(t.Context(), holder) }()
			heal := harm()
			<-time.After(300 * time.Millisecond)
			heal()
			must(t, <-released)
			g := <-got
			if r.Token = g.Token; g.Token == 0 || time.Now().After(g.Sent.Add(g.For)) {
				r = acquire(t, b, r)
			}
			must(t, b.Renew(t.Context(), r))
			if h := backendtest.Held(t, backendtest.Err(other.TryAcquire(t.Context(), lock(what, "stranger")))); h.Owner != "next" || r.Token <= holder.Token {
				t.Errorf("held by %+v, and not with %d after %d", h, r.Token, holder.Token)
			}
		})
	}
}
