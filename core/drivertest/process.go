package drivertest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

func processCases() []Case {
	between := func(c Case) Case {
		c.Needs, c.Excuse, c.Alone = []Need{NeedHost}, oneHost, true
		return c
	}
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
			Needs:  []Need{NeedPlugin},
			Excuse: func(p driver.Properties) string { return when(p.SurvivesPlugin, "leases survive the plugin") },
			Alone:  true,
			Run:    storeKilled,
		},
		{
			Name: "L8 another process renews and releases a lease",
			Explain: `A backend keeps no lease state in its process that is not in the store too: a process that knows owner and token renews and
releases the lease from a new process, and closing the old one frees nothing.`,
			Excuse: func(p driver.Properties) string {
				return when(p.Scope == driver.ScopeHost, diesWithPlugin(p))
			},
			Run: renewedElsewhere,
		},
		between(Case{
			Name: "L5 a frozen host loses its lock to another",
			Explain: `The host drives renewal: while it is stopped (SIGSTOP) its plugin, which lives, must not renew for it. Another host
gets the lock at the end of the TTL, and the first, which could not know, finds its lease over at its first look.`,
			Run: frozenHost,
		}),
		between(Case{
			Name: "L7 the lock of a killed host is free at once",
			Explain: `The plugin outlives its host, sees that it died, and releases what that host held, long before the TTL of 30 s is
over. Locks of other hosts are not touched.`,
			Run: killedHost,
		}),
		between(Case{
			Name:    "L7 a killed host leaves the queue",
			Explain: `Acquires under way and places in the queue end with their host: the next waiter gets the lock when it is released.`,
			Run:     killedWaiter,
		}),
		between(Case{
			Name: "L7 a killed host's AtLeast is kept",
			Explain: `AtLeast holds on host death too: what is left of it is how long the lock stays taken, and no longer. Else another
host runs the same tick of the schedule again.`,
			Run: killedAtLeast,
		}),
		between(Case{
			Name: "L7 a killed host's lock is kept for the delay",
			Explain: `A host can ask for a delay between its death and the release, for writes in flight and its children. The plugin
renews meanwhile: the lock is taken for the delay, however short its TTL is, and free soon after.`,
			Run: killedDelay,
		}),
	}
}

func diesWithPlugin(p driver.Properties) string {
	return when(!p.SurvivesPlugin, "leases do not survive the plugin")
}

func pluginHangs(t T, h *Harness) {
	c := h.client(t)
	o := core.LockOptions{TTL: h.ttl(3 * time.Second)}
	l := c.mustTry(t, "jobs", o)
	pid := h.Plugin(c.b).Pid()
	h.Plugin(c.b).Freeze(t)
	awaitDone(t, l, o.TTL+2*time.Second, func() bool { return l.State() == core.Held && h.Plugin(c.b).Pid() != pid })
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
	awaitDone(t, l, 10*time.Second, nil)
	wantWithin(t, killed, time.Now(), time.Second, "the loss with the plugin")
	wantCause(t, l, core.ErrPluginDied)
	h.wantHigher(t, c.launch(t, "jobs", h.lasting()).granted(t, 10*time.Second).Token(), l.Token())
}

func renewedElsewhere(t T, h *Harness) {
	first := h.Open(t)
	a := h.attempt(first, "jobs", h.lasting().TTL).must(t)
	wantNil(t, call(t, first.Close), "Close")
	a.b = h.Open(t)
	a.wantHeldBy(t, "after its process has closed")
	a.mustRenew(t)
	a.mustRelease(t)
	wantFree(t, a.b, "jobs", "after the release from another process")
}

func oneHost(p driver.Properties) string {
	return when(p.Scope == driver.ScopeHost, "scope host: hosts do not share a store")
}

func hostAcquires(t T, p Host, ttl, atLeast time.Duration) uint64 {
	token, err := p.Acquire(t, "jobs", ttl, atLeast)
	wantNil(t, err, "Acquire by the host")
	return token
}

func frozenHost(t T, h *Harness) {
	p, c := h.Host(t, 0), h.client(t)
	ttl := h.ttl(2 * time.Second)
	token := hostAcquires(t, p, ttl, 0)
	a := c.start(t, "jobs", h.lasting())
	p.Freeze(t)
	frozen := time.Now()
	l := a.granted(t, ttl+h.late()+5*time.Second)
	wantWithin(t, frozen, a.at, ttl+h.late()+tolerance, "the grant after the freeze")
	h.wantHigher(t, l.Token(), token)
	p.Resume(t)
	valid, done, cause := p.State(t, "jobs")
	if valid || !done || !slices.Contains([]string{"expired", "taken", "revoked", "unreachable"}, cause) {
		t.Errorf("after SIGCONT the host's first look finds Valid %t, Done %t, cause %q", valid, done, cause)
	}
	if at := inspect(t, c.b, "jobs"); !l.Valid() || at.Owner != l.Owner() {
		t.Errorf("the resumed host has ended the lease of owner %s: %v; %s", l.Owner(), l.Err(), describe(at))
	}
}

func killedHost(t T, h *Harness) {
	p, c := h.Host(t, 0), h.client(t)
	kept := c.mustTry(t, "kept", h.lasting())
	token := hostAcquires(t, p, h.lasting().TTL, 0)
	a := c.start(t, "jobs", h.lasting())
	p.Kill(t)
	killed := time.Now()
	l := a.granted(t, h.lasting().TTL+5*time.Second)
	wantWithin(t, killed, a.at, time.Second, "the grant after the host was killed")
	h.wantHigher(t, l.Token(), token)
	if at := inspect(t, c.b, "kept"); !kept.Valid() || at.Owner != kept.Owner() {
		t.Errorf("the death of a host has touched another's lock: %s", describe(at))
	}
}

func killedWaiter(t T, h *Harness) {
	p, cs := h.Host(t, 0), h.clients(t, 2)
	l := cs[0].mustTry(t, "jobs", h.lasting())
	p.Enqueue(t, "jobs", h.lasting().TTL, 0)
	a := cs[1].start(t, "jobs", h.lasting())
	p.Kill(t)
	killed := time.Now()
	eventually(t, 5*time.Second, "the dead host's waiter has left the queue", func() bool {
		return inspect(t, cs[0].b, "jobs").Waiters <= 1
	})
	wantWithin(t, killed, time.Now(), 2*time.Second, "the dead host's waiter in the queue")
	mustRelease(t, l)
	released := time.Now()
	a.granted(t, 20*time.Second)
	wantWithin(t, released, a.at, time.Second, "the grant after the release")
}

func killedAtLeast(t T, h *Harness) {
	p, c := h.Host(t, 0), h.client(t)
	least := h.ttl(2 * time.Second)
	sent := time.Now()
	hostAcquires(t, p, h.lasting().TTL, least)
	granted := time.Now()
	p.Kill(t)
	wantExpiry(t, h.attempt(c.b, "jobs", h.lasting().TTL), sent.Add(least), granted.Add(least+h.late()+time.Second))
}

func killedDelay(t T, h *Harness) {
	ttl := h.ttl(3 * time.Second) // long, because the plugin may stall for 1.5 s on a busy machine
	delay := 2 * ttl
	p, c := h.Host(t, delay), h.client(t)
	hostAcquires(t, p, ttl, 0)
	over := time.Now().Add(delay)
	p.Kill(t)
	latest := time.Now().Add(delay + time.Second)
	other := h.attempt(c.b, "jobs", h.lasting().TTL)
	for time.Now().Before(over) {
		if err := other.try(t); err == nil {
			if early := time.Until(over); early > 0 {
				mistimed(t, ttl, "another owner got the lock %v before the delay was over", early)
			}
			return
		}
		pause(t, pollEvery)
	}
	wantExpiry(t, other, over, latest)
}
