package drivertest

import (
	"slices"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

func hostCases() []Case {
	between := func(c Case) Case {
		c.Needs, c.Excuse, c.Alone = []Need{NeedHost}, oneHost, true
		return c
	}
	return []Case{
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

func oneHost(p driver.Properties) string {
	if p.Scope == driver.ScopeHost {
		return "scope host: hosts do not share a store"
	}
	return ""
}

func hostAcquires(t T, p Host, name string, ttl time.Duration) uint64 {
	t.Helper()
	token, err := p.Acquire(t, name, ttl, 0)
	if err != nil {
		t.Fatalf("Acquire by the host: %v", err)
	}
	return token
}

func frozenHost(t T, h *Harness) {
	p, c := h.Host(t, 0), h.client(t)
	ttl := h.ttl(2 * time.Second)
	token := hostAcquires(t, p, "jobs", ttl)
	a := c.start(t, "jobs", h.lasting())
	p.Freeze(t)
	frozen := time.Now()
	l := a.granted(t, ttl+h.late()+5*time.Second)
	wantWithin(t, frozen, a.at, ttl+h.late()+tolerance, "the grant after the freeze")
	h.wantHigher(t, l.Token(), token)
	p.Resume(t)
	valid, done, cause := p.State(t, "jobs")
	if valid || !done {
		t.Errorf("after SIGCONT the host's first look finds Valid %t, Done %t, cause %q", valid, done, cause)
	}
	if !slices.Contains([]string{"expired", "taken", "revoked", "unreachable"}, cause) {
		t.Errorf("the cause of the loss is %q", cause)
	}
	if !l.Valid() {
		t.Errorf("the resumed host has ended the lease of the other: %v", l.Err())
	}
	if at := inspect(t, c.b, "jobs"); at.Owner != l.Owner() {
		t.Errorf("after the first host resumed: %s, instead of owner %s", describe(at), l.Owner())
	}
}

func killedHost(t T, h *Harness) {
	p, c := h.Host(t, 0), h.client(t)
	kept := c.mustTry(t, "kept", h.lasting())
	token := hostAcquires(t, p, "jobs", h.lasting().TTL)
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
	if _, err := p.Acquire(t, "jobs", h.lasting().TTL, least); err != nil {
		t.Fatalf("Acquire by the host: %v", err)
	}
	granted := time.Now()
	p.Kill(t)
	wantExpiry(t, h.attempt(c.b, "jobs", h.lasting().TTL), sent.Add(least), granted.Add(least+h.late()+time.Second))
}

func killedDelay(t T, h *Harness) {
	ttl := h.ttl(3 * time.Second) // long, because the plugin may stall for 1.5 s on a busy machine
	delay := 2 * ttl
	p, c := h.Host(t, delay), h.client(t)
	hostAcquires(t, p, "jobs", ttl)
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
