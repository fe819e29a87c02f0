package drivertest

import (
	"errors"
	"slices"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

func doneCases() []Case {
	return []Case{
		{
			Name: "L3 done at the deadline when the store is silent",
			Explain: `Done closes at or before the deadline in every case, also when renewals get no answer at all: no call may hold up
the end of a lease. Valid is false from then on, and the cause says that the store could not be reached.`,
			Run: doneWhenSilent,
		},
		{
			Name:    "L3 done at the deadline when the store is frozen",
			Explain: `As with a silent store, but with the real server stopped (SIGSTOP): its connections stay open and nothing answers.`,
			Needs:   []Need{NeedStore},
			Run:     doneWhenFrozen,
		},
		{
			Name: "L3 a lease that another took says so",
			Explain: `When the store says that another owner holds the lock, the lease is lost at the next renewal, long before its
deadline, and the cause says that it was taken. A renewal must never bring the lease back.`,
			Run: doneWhenTaken,
		},
		{
			Name: "L3 a broken lease is lost at the next renewal",
			Explain: `Break ends a lease by its token, whichever client owns it. Its holder notices at its next renewal, or at once when the
backend pushes losses, and the cause is revoked or taken.`,
			Excuse: needsCapability(driver.CapAdmin),
			Run:    func(t T, h *Harness) { doneWhenBroken(t, h, (*client).mustTry) },
		},
		{
			Name: "L3 a broken lease is lost after a hand-over too",
			Explain: `Break ends what the store has granted to the host, to whomever the lock was handed over inside it: who holds it now
notices, and its token, which the store does not know, is one to break it by.`,
			Excuse: needsCapability(driver.CapAdmin),
			Run:    func(t T, h *Harness) { doneWhenBroken(t, h, (*client).handed) },
		},
		{
			Name:    "L3 a released lease is over at once",
			Explain: `After Release Done is closed, Valid is false, and the cause is released.`,
			Run:     doneWhenReleased,
		},
	}
}

// needsCapability excuses backends that do not declare capability.
func needsCapability(capability driver.Capability) func(driver.Properties) string {
	return func(p driver.Properties) string {
		if slices.Contains(p.Capabilities, capability) {
			return ""
		}
		return "capability " + string(capability) + " is not declared"
	}
}

func doneWhenSilent(t T, h *Harness) {
	c, g := h.injected(t, h.open(t))
	l := c.mustTry(t, "jobs", h.brief())
	g.set(silence, nil)
	awaitDone(t, l, h.brief().TTL+2*time.Second)
	wantCause(t, l, core.ErrUnreachable, core.ErrExpired)
}

func doneWhenFrozen(t T, h *Harness) {
	c := h.client(t)
	o := core.LockOptions{TTL: h.ttl(2 * time.Second)}
	l := c.mustTry(t, "jobs", o)
	h.Store.Freeze(t)
	t.Cleanup(func() { h.Store.Resume(t) })
	awaitDone(t, l, o.TTL+2*time.Second)
}

func doneWhenTaken(t T, h *Harness) {
	bs := h.backends(t, 2)
	o := core.LockOptions{TTL: h.ttl(3 * time.Second)}
	l := h.clientOn(t, bs[0]).mustTry(t, "jobs", o)
	depose(t, h, bs[1], "jobs")
	thief := h.attempt(bs[1], "jobs", h.lasting().TTL).must(t)
	awaitDone(t, l, o.TTL/2+tolerance)
	wantCause(t, l, core.ErrTaken, core.ErrRevoked)
	thief.wantHeldBy(t, "after the loss")
}

// getting is how a client comes by a lease.
type getting func(c *client, t T, name string, o core.LockOptions) held

func doneWhenBroken(t T, h *Harness, get getting) {
	cs := h.clients(t, 2)
	o := core.LockOptions{TTL: h.ttl(3 * time.Second)}
	l := get(cs[0], t, "jobs", o)
	if err := cs[1].Break(t.Context(), "jobs", l.Token()+1<<10); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Break with another token: want ErrNotHeld, got %v", err)
	}
	if !l.Valid() {
		t.Fatalf("Break with another token has ended the lease: %v", l.Err())
	}
	if err := cs[1].Break(t.Context(), "jobs", l.Token()); err != nil {
		t.Fatalf("Break with the lease's token: %v", err)
	}
	after := cs[1].launch(t, "jobs", h.lasting()).granted(t, 2*time.Second)
	awaitDone(t, l, o.TTL/2+tolerance)
	wantCause(t, l, core.ErrRevoked, core.ErrTaken)
	h.wantHigher(t, after.Token(), l.Token())
}

func doneWhenReleased(t T, h *Harness) {
	c := h.client(t)
	l := c.mustTry(t, "jobs", h.lasting())
	mustRelease(t, l)
	select {
	case <-l.Done():
	default:
		t.Errorf("Done is open after Release")
	}
	if l.Valid() || !errors.Is(l.Err(), core.ErrReleased) || l.State() != core.Released {
		t.Errorf("after Release Valid is %t, Err %v, State %v", l.Valid(), l.Err(), l.State())
	}
	wantFree(t, c.b, "jobs", "after Release")
}
