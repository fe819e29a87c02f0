package drivertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

func pluginCases() []Case {
	return []Case{
		{
			Name: "L3 done before deadline when the plugin hangs",
			Explain: `A plugin that is stopped (SIGSTOP) answers nothing and closes nothing. Calls to it have deadlines of a third of what
is left of the lease, so that it is replaced while the lease lives; if it is not, Done closes at or before the deadline. The
host itself is never blocked.`,
			Needs: []Need{NeedPlugin},
			Alone: true,
			Run:   pluginHangs,
		},
		{
			Name: "L8 a lease outlives its plugin",
			Explain: `When the plugin is killed the lease becomes suspect, a new plugin is started, and the lease is renewed with the same
owner and token. No other owner is granted the lock in between.`,
			Needs:  []Need{NeedPlugin},
			Excuse: diesWithPlugin,
			Alone:  true,
			Run:    pluginKilled,
		},
		{
			Name: "L8 a lease whose store died with the plugin is lost within a second",
			Explain: `A store inside the plugin ends with it. The lease is then lost, with cause plugin died, within a second and not at
its deadline, and the tokens of the new store are higher.`,
			Needs: []Need{NeedPlugin},
			Excuse: func(p driver.Properties) string {
				if p.SurvivesPlugin {
					return "leases survive the plugin"
				}
				return ""
			},
			Alone: true,
			Run:   storeKilled,
		},
		{
			Name: "L8 another process renews and releases a lease",
			Explain: `A backend keeps no lease state in its process that is not in the store too: a process that knows owner and token renews and
releases the lease from a new process, and closing the old one frees nothing.`,
			Excuse: func(p driver.Properties) string {
				if p.Scope == driver.ScopeHost && !p.SurvivesPlugin {
					return diesWithPlugin(p)
				}
				return ""
			},
			Run: renewedElsewhere,
		},
	}
}

func diesWithPlugin(p driver.Properties) string {
	if p.SurvivesPlugin {
		return ""
	}
	return "leases do not survive the plugin"
}

func pluginHangs(t T, h *Harness) {
	c := h.client(t)
	o := core.LockOptions{TTL: h.ttl(3 * time.Second)}
	l := c.mustTry(t, "jobs", o)
	pid := h.Plugin(c.b).Pid()
	h.Plugin(c.b).Freeze(t)
	awaitDoneOr(t, l, o.TTL+2*time.Second, func() bool { return l.State() == core.Held && h.Plugin(c.b).Pid() != pid })
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func pluginKilled(t T, h *Harness) {
	cs := h.clients(t, 2)
	o := core.LockOptions{TTL: h.ttl(5 * time.Second)}
	l := cs[0].mustTry(t, "jobs", o)
	token, owner := l.Token(), l.Owner()
	pid := h.Plugin(cs[0].b).Pid()
	h.Plugin(cs[0].b).Kill(t)
	recovered := func() bool {
		other := h.attempt(cs[1].b, "jobs", o.TTL)
		err := other.try(t)
		wantAlive(t, l, o.TTL)
		if !errors.Is(err, driver.ErrHeld) {
			t.Fatalf("after the plugin of owner %s died owner %s asked and got token %d, %v", owner, other.Owner, other.Token, err)
		}
		return cs[0].saw(core.EventSuspect, "jobs") > 0 && l.State() == core.Held && h.Plugin(cs[0].b).Pid() != pid
	}
	eventually(t, o.TTL, "the lease was suspect and is held through a new plugin", recovered)
	renewed := l.Deadline()
	throughout(t, o.TTL/2, func() string {
		if recovered(); !l.Valid() || l.Token() != token || l.Owner() != owner {
			return fmt.Sprintf("Valid is %t, token %d instead of %d: %v", l.Valid(), l.Token(), token, l.Err())
		}
		return ""
	})
	if !l.Deadline().After(renewed) {
		mistimed(t, o.TTL/2, "the lease is not renewed through the new plugin")
	}
	mustRelease(t, l)
	cs[1].mustTry(t, "jobs", o)
}

func storeKilled(t T, h *Harness) {
	c := h.client(t)
	l := c.mustTry(t, "jobs", h.lasting())
	h.Plugin(c.b).Kill(t)
	killed := time.Now()
	awaitDone(t, l, 10*time.Second)
	wantWithin(t, killed, time.Now(), time.Second, "the loss with the plugin")
	wantCause(t, l, core.ErrPluginDied)
	h.wantHigher(t, c.launch(t, "jobs", h.lasting()).granted(t, 10*time.Second).Token(), l.Token())
}

func renewedElsewhere(t T, h *Harness) {
	first := h.Open(t)
	a := h.attempt(first, "jobs", h.lasting().TTL).must(t)
	if err := call(t, func(ctx context.Context) error { return first.Close(ctx) }); err != nil {
		t.Errorf("Close: %v", err)
	}
	a.b = h.Open(t)
	a.wantHeldBy(t, "after its process has closed")
	a.mustRenew(t)
	a.mustRelease(t)
	wantFree(t, a.b, "jobs", "after the release from another process")
}
