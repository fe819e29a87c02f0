package drivertest

import (
	"errors"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

func deadlineCases() []Case {
	return []Case{
		{
			Name: "L2 a grant lives for its TTL",
			Explain: `The store counts the TTL from when it handles the acquire. Shorter, and another owner gets the lock while the holder
rightly believes in it; much longer, and a crashed holder blocks the others for more than it asked for.`,
			Run: grantLives,
		},
		{
			Name: "L2 a renewal lives for its TTL",
			Explain: `A renewal sets the end of the lease to TTL from when the store handles it, neither more nor less, whatever was
left of the lease before.`,
			Run: renewalLives,
		},
		{
			Name: "L2 no other owner gets the lock before its holder's deadline",
			Explain: `When a holder can no longer renew, its own deadline must have passed, and Valid be false, before the store grants
the lock to another host.`,
			Run: deadlineBeforeGrant,
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
			Run:    doneWhenBroken,
		},
	}
}

func grantLives(t T, h *Harness) {
	bs := h.backends(t, 2)
	a := h.attempt(bs[0], "jobs", h.brief().TTL)
	h.wantLife(t, bs[1], "jobs", a.TTL, func() { a.must(t) })
}

func renewalLives(t T, h *Harness) {
	bs := h.backends(t, 2)
	a := h.attempt(bs[0], "jobs", h.ttl(900*time.Millisecond)).must(t)
	pause(t, a.TTL/2)
	h.wantLife(t, bs[1], "jobs", a.TTL, func() { a.mustRenew(t) })
}

// wantLife checks that the lock is taken for the time d after the request that ask sends.
func (h *Harness) wantLife(t T, b driver.Backend, name string, d time.Duration, ask func()) {
	sent := time.Now()
	ask()
	replied := time.Now()
	wantExpiry(t, h.attempt(b, name, h.lasting().TTL), sent.Add(d), replied.Add(d+h.late()))
}

// wantExpiry checks that the attempt other gets the lock between the times earliest and latest.
func wantExpiry(t T, other *attempt, earliest, latest time.Time) {
	for {
		asked := time.Now()
		err := other.try(t)
		if err == nil {
			// The grant may be up to 1 ms early, because the store may count in whole milliseconds.
			if early := time.Until(earliest); early > time.Millisecond {
				t.Errorf("another owner got the lock %v before the lease was over", early)
			}
			return
		}
		wantHeld(t, err, "while the lease lives")
		if ran(t, earliest, asked) > latest.Sub(earliest) {
			t.Fatalf("the lease lives on %v after its end: %v", asked.Sub(earliest), err)
		}
		pause(t, pollEvery)
	}
}

func deadlineBeforeGrant(t T, h *Harness) {
	bs := h.backends(t, 2)
	c, g := h.injected(t, bs[0])
	l := c.mustTry(t, "jobs", h.brief())
	g.cut.Store(true)
	other := h.attempt(bs[1], "jobs", h.lasting().TTL)
	limit := 2*h.brief().TTL + h.late()
	eventually(t, limit, "another gets the lock of a holder that does not renew", func() bool { return other.try(t) == nil })
	now := time.Now()
	if early := l.Deadline().Sub(now); early > 0 || l.Valid() {
		t.Errorf("token %d was granted %v before the deadline of its predecessor, token %d", other.Token, early, l.Token())
	}
}

func doneWhenFrozen(t T, h *Harness) {
	c := h.client(t)
	o := core.LockOptions{TTL: h.ttl(2 * time.Second)}
	l := c.mustTry(t, "jobs", o)
	h.Store.Freeze(t)
	awaitDone(t, l, o.TTL+2*time.Second, nil)
}

func doneWhenTaken(t T, h *Harness) {
	bs := h.backends(t, 2)
	o := core.LockOptions{TTL: h.ttl(3 * time.Second)}
	l := h.clientOn(t, bs[0]).mustTry(t, "jobs", o)
	depose(t, h, bs[1])
	thief := h.attempt(bs[1], "jobs", h.lasting().TTL).must(t)
	awaitDone(t, l, o.TTL/2+tolerance, nil)
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
	wantNil(t, cs[1].Break(t.Context(), "jobs", l.Token()), "Break with the lease's token")
	after := cs[1].launch(t, "jobs", h.lasting()).granted(t, 2*time.Second)
	awaitDone(t, l, o.TTL/2+tolerance, nil)
	wantCause(t, l, core.ErrRevoked, core.ErrTaken)
	h.wantHigher(t, after.Token(), l.Token())
}
