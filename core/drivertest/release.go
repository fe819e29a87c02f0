package drivertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

func releaseCases() []Case {
	return []Case{
		{
			Name:    "L7 release compares the owner",
			Explain: `Release frees only the lease of its own owner: one that goes by the key frees a stranger's lock.`,
			Run:     func(t T, h *Harness) { strangersRelease(t, h, func(r *driver.Request) { r.Owner += "x" }) },
		},
		{
			Name:    "L7 release compares the token",
			Explain: `Release frees only the grant that its token belongs to, so that one that comes late ends no later grant.`,
			Run:     func(t T, h *Harness) { strangersRelease(t, h, func(r *driver.Request) { r.Token++ }) },
		},
		{
			Name:    "L7 renew compares the owner",
			Explain: `A renewal by a stranger must neither succeed nor lengthen the lease.`,
			Run:     func(t T, h *Harness) { strangersRenewal(t, h, func(r *driver.Request) { r.Owner += "x" }) },
		},
		{
			Name:    "L7 renew compares the token",
			Explain: `A renewal with another token must neither succeed nor lengthen the lease.`,
			Run:     func(t T, h *Harness) { strangersRenewal(t, h, func(r *driver.Request) { r.Token++ }) },
		},
		{
			Name: "L7 the release of an expired holder frees no other lease",
			Explain: `A holder that was paused past its TTL releases when it wakes up. By then the lock is another's, and must stay so;
the answer names the new holder.`,
			Run: lateRelease,
		},
		{
			Name:    "L7 a lost lease is never renewed back",
			Explain: `Renew never brings back a lease that has expired or was deleted: the lock may have changed hands in between.`,
			Run:     lateRenewal,
		},
		{
			Name:    "L7 release is idempotent",
			Explain: `A second Release is harmless, at once or after another owner has taken the lock.`,
			Run:     releaseTwice,
		},
		{
			Name: "L7 release with Keep shortens the lease and never lengthens it",
			Explain: `With Keep the release leaves the lock taken for just that long: a scheduled job of 20 ms keeps its lock, so that a
host whose clock is behind does not run the same tick again.`,
			Run: keep,
		},
		{
			Name: "L7 a request at the end of a lease leaves the next lease alone",
			Explain: `Release, Renew and Proclaim compare owner and token in the atomic step that changes the lease. One that looks first
and acts afterwards hits the lease of the owner that came in between.`,
			Run: lastMoments,
		},
		{
			Name: "L7 a release outlasts a crash of the store",
			Explain: `A store that loses its last writes in a crash has lost them all after seconds, or none: a lock that was released before
then is free, and not its old holder's again. One that claims strict commits has lost none at once.`,
			Needs: []Need{NeedStore},
			Run:   releaseOutlasts,
		},
	}
}

func strangersRelease(t T, h *Harness, change func(*driver.Request)) {
	bs := h.backends(t, 2)
	a := h.attempt(bs[0], "jobs", h.lasting().TTL).must(t)
	stranger := a.by(bs[1])
	change(&stranger.Request)
	at := wantNotHeld(t, stranger.release(t), "a stranger's release")
	if at.Held() && at.Owner != a.Owner {
		t.Errorf("the error names %s instead of owner %s", describe(at), a.Owner)
	}
	a.wantHeldBy(t, "after a stranger's release")
	stranger.Keep = time.Millisecond
	wantNotHeld(t, stranger.release(t), "a stranger's release with Keep")
	if at := inspect(t, a.b, a.Name); at.TTL < a.TTL/2 {
		t.Errorf("a stranger's release with Keep has shortened the lease: %s", describe(at))
	}
	stranger.Request = a.Request
	stranger.Token = 0
	if err := stranger.release(t); err == nil {
		t.Errorf("a release without a token is no error")
	}
	a.wantHeldBy(t, "after a release without a token")
}

func strangersRenewal(t T, h *Harness, change func(*driver.Request)) {
	bs := h.backends(t, 2)
	a := h.attempt(bs[0], "jobs", h.ttl(5*time.Second)).must(t)
	stranger := a.by(bs[1])
	stranger.TTL = h.lasting().TTL
	change(&stranger.Request)
	wantNotHeld(t, stranger.renew(t), "a stranger's renewal")
	if at := inspect(t, a.b, a.Name); at.Owner != a.Owner || at.TTL > a.TTL {
		t.Errorf("a stranger's renewal has changed the lease: %s", describe(at))
	}
}

func outlived(t T, h *Harness) (old, now *attempt) {
	bs := h.backends(t, 2)
	old = h.attempt(bs[0], "jobs", h.ttl(100*time.Millisecond)).must(t)
	eventually(t, old.TTL+h.late()+time.Second, "another gets the lock after expiry", func() bool {
		now = h.attempt(bs[1], "jobs", h.lasting().TTL)
		return now.try(t) == nil
	})
	return old, now
}

func lateRelease(t T, h *Harness) {
	old, now := outlived(t, h)
	at := wantNotHeld(t, old.release(t), "the expired holder's release")
	if at.Held() && at.Owner != now.Owner {
		t.Errorf("the error names %s instead of owner %s", describe(at), now.Owner)
	}
	now.wantHeldBy(t, "after the expired holder's release")
}

func lateRenewal(t T, h *Harness) {
	old, now := outlived(t, h)
	wantNotHeld(t, old.renew(t), "renewing after another got the lock")
	now.wantHeldBy(t, "after the expired holder's renewal")
	now.mustRelease(t)
	wantNotHeld(t, now.renew(t), "renewing after release")
	wantNotHeld(t, old.renew(t), "renewing long after expiry")
	wantFree(t, old.b, "jobs", "after renewals that came too late")
	brief := h.attempt(old.b, "brief", h.ttl(100*time.Millisecond)).must(t)
	expires(t, h, brief, brief.b)
	wantNotHeld(t, brief.renew(t), "renewing after expiry, with no holder in between")
	wantFree(t, brief.b, "brief", "after a renewal that came too late")
}

func releaseTwice(t T, h *Harness) {
	cs := h.clients(t, 2)
	l := cs[0].mustTry(t, "jobs", h.lasting())
	for i := range 2 {
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("Release number %d: %v", i+1, err)
		}
	}
	next := cs[1].mustTry(t, "jobs", h.lasting())
	if err := l.Release(t.Context()); err != nil && !errors.Is(err, core.ErrNotHeld) {
		t.Errorf("Release after another took the lock: %v", err)
	}
	again := h.attempt(cs[0].b, "jobs", h.lasting().TTL)
	again.Owner, again.Token = l.Owner(), core.GrantNumber(l.Token())
	wantNotHeld(t, again.release(t), "the store is asked for a second release")
	if at := inspect(t, cs[1].b, "jobs"); at.Owner != next.Owner() || !next.Valid() {
		t.Errorf("a second Release of owner %s has freed owner %s: %s", l.Owner(), next.Owner(), describe(at))
	}
}

func keep(t T, h *Harness) {
	bs := h.backends(t, 2)
	a := h.attempt(bs[0], "jobs", h.lasting().TTL).must(t)
	a.Keep = h.ttl(700 * time.Millisecond)
	sent := time.Now()
	a.mustRelease(t)
	replied := time.Now()
	if at := inspect(t, bs[1], "jobs"); !at.Held() || at.TTL > a.Keep {
		t.Fatalf("released with Keep %v: %s", a.Keep, describe(at))
	}
	wantExpiry(t, h.attempt(bs[1], "jobs", h.lasting().TTL), sent.Add(a.Keep), replied.Add(a.Keep+h.late()))
	b := h.attempt(bs[0], "other", h.ttl(500*time.Millisecond)).must(t)
	b.Keep = h.lasting().TTL
	b.mustRelease(t)
	if at := inspect(t, bs[1], "other"); at.TTL > b.TTL {
		t.Errorf("a lease of %v released with Keep %v: %s", b.TTL, b.Keep, describe(at))
	}
}

// For a second, lastMoments repeats requests, because a bug shows only in a gap of microseconds.
func lastMoments(t T, h *Harness) {
	bs := h.backends(t, 2)
	var wg sync.WaitGroup
	for of, do := range map[string]func(a *attempt) error{
		"Release":  func(a *attempt) error { return a.release(t) },
		"Renew":    func(a *attempt) error { return a.renew(t) },
		"Proclaim": func(a *attempt) error { return a.proclaim(t) },
	} {
		for i := range 2 {
			wg.Go(func() {
				for start := time.Now(); time.Since(start) < time.Second; {
					a := h.attempt(bs[0], fmt.Sprint(of, i), h.ttl(30*time.Millisecond))
					lastMoment(t, a, h.attempt(bs[1], a.Name, h.lasting().TTL), do)
				}
			})
		}
	}
	wg.Wait()
}

// lastMoment calls do(a) just before a's lease ends, while the attempt next asks for the lock.
func lastMoment(t T, a, next *attempt, do func(*attempt) error) {
	sent := time.Now()
	a.must(t)
	a.Value = []byte("late")
	var wg sync.WaitGroup
	wg.Go(func() {
		pause(t, time.Until(sent.Add(a.TTL-rand.N(time.Millisecond))))
		if err := do(a); err != nil && !errors.Is(err, driver.ErrUnavailable) {
			wantNotHeld(t, err, "a request at the end of the lease of "+a.Name)
		}
	})
	pause(t, a.TTL-time.Millisecond)
	err := next.try(t)
	for ; err != nil && !errors.Is(err, driver.ErrUnavailable); err = next.try(t) {
		wantHeld(t, err, "while the lease may live")
		pause(t, breath)
	}
	wg.Wait()
	if err != nil { // the store is overloaded, so this round shows nothing
		next.withdraw(t)
		return
	}
	if at := inspect(t, next.b, next.Name); at.Owner != next.Owner || at.Token != next.Token || len(at.Value) > 0 || at.TTL < next.TTL/2 {
		t.Fatalf("owner %s was granted token %d, and a request of owner %s has changed that: %s, value %q", next.Owner, next.Token, a.Owner, describe(at), at.Value)
	}
	next.mustRelease(t)
}

// After the time written, a store that syncs every second has surely saved a release.
const written = 2500 * time.Millisecond

func releaseOutlasts(t T, h *Harness) {
	b := h.open(t)
	a := h.attempt(b, "jobs", h.lasting().TTL).must(t)
	a.mustRelease(t)
	if h.props.Fencing != driver.FencingStrict {
		pause(t, written)
	}
	h.Store.Stop(t)
	h.Store.Start(t, true)
	next := h.attempt(b, "jobs", a.TTL)
	eventually(t, 20*time.Second, "the lock is granted after the restart", func() bool {
		err := next.try(t)
		if held := (*driver.HeldError)(nil); errors.As(err, &held) && held.Holder.Owner == a.Owner {
			t.Fatalf("owner %s released token %d before the crash, and has the lock again: %v", a.Owner, a.Token, err)
		}
		return err == nil
	})
}
