package etcd

import (
	"errors"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

func TestHarmToAWaiter(t *testing.T) {
	s := start(t, nil)
	binary := plugintest.Build(t, "./lockplugin-etcd")
	h := plugintest.Binary(binary, func(drivertest.T) driver.Config { return driver.Config{"address": s.Addr()} })(t)
	backendtest.HarmToAWaiter(t, h, connect(t, on(s)))
}

// TestWatchLostAtTheRelease cuts a waiter's connections, or pauses the store, just when the
// holder releases the lock. Even if the waiter does not see the release, it must get the lock,
// by a grant or by an acquire. A grant must not last longer than the store keeps the lock.
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
			must(t, backendtest.Err(b.Wait(t.Context(), r, time.Millisecond))) // no fault cuts this answer
			got := make(chan driver.Grant, 1)
			go func() {
				g, err := b.Wait(t.Context(), r, 20*time.Second)
				if err != nil && !errors.Is(err, driver.ErrUnavailable) { // a cut request is no failure
					t.Error(err)
				}
				got <- g
			}()
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
