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
			Run:    doneWhenBroken,
		},
	}
}

func needsCapability(capability driver.Capability) func(driver.Properties) string {
	return func(p driver.Properties) string {
		if slices.Contains(p.Capabilities, capability) {
			return ""
		}
		return "capability " + string(capability) + " is not declared"
	}
}

func doneWhenFrozen(t T, h *Harness) {
	c := h.client(t)
	o := core.LockOptions{TTL: h.ttl(2 * time.Second)}
	l := c.mustTry(t, "jobs", o)
	h.Store.Freeze(t)
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

func doneWhenBroken(t T, h *Harness) {
	cs := h.clients(t, 2)
	o := core.LockOptions{TTL: h.ttl(3 * time.Second)}
	l := cs[0].mustTry(t, "jobs", o)
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
