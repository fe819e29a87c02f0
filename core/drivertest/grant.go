package drivertest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// grantedCases returns cases for stores that grant a lock to a waiter without a TryAcquire.
func grantedCases() []Case {
	ofHost := func(p driver.Properties) string { return cmp.Or(oneHost(p), diesWithPlugin(p), wakesOnly(p)) }
	return []Case{
		{
			Name: "K4 a wake-up may carry a grant, which ends for its waiter first",
			Explain: `A store that grants in the release itself does so for the first span. The waiter counts it from the last sign of life
that the store had seen by then, so that its deadline is not later than the store's end, however late the wake-up comes.`,
			Excuse: wakesOnly,
			Run:    ownGrantEnds,
		},
		{
			Name: "K4 a grant whose wake-up is lost or late is confirmed by asking",
			Explain: `A waiter that was not told in time asks as after any wait. The store answers with the grant that it has made, once, and
gives it the TTL; when that is over, with a new grant.`,
			Excuse: wakesOnly,
			Run:    asksForGrant,
		},
		{
			Name: "K4 a waiter that is gone costs the first span",
			Explain: `The store cannot know that a waiter has died since its last sign of life. The lock that was granted to it is free after
the first span, not after its TTL.`,
			Excuse: wakesOnly,
			Run:    goneCosts,
		},
		{
			Name: "K4 a waiting host that is frozen costs the first span",
			Explain: `A host is frozen while it waits, and its plugin goes on. No process asks the store for that host: the lock that was granted
to it is free after the first span, also where the host would ask before it uses it, as with AtLeast.`,
			Needs:  []Need{NeedHost},
			Excuse: ofHost,
			Alone:  true,
			Run:    frozenCosts,
		},
		{
			Name: "K4 a waiter that gives no sign of life is passed over",
			Explain: `A waiter whose host and plugin are gone for seconds is dropped from the queue at the next release: the lock goes to the
waiter behind it at once.`,
			Needs:  []Need{NeedHost},
			Excuse: ofHost,
			Alone:  true,
			Run:    passedOver,
		},
		{
			Name: "K4 a withdrawal undoes a grant on its way",
			Explain: `A waiter gives up while the release grants the lock to it: whichever comes first, the withdrawal deletes the grant or
the place in the queue, and the next waiter is granted the lock.`,
			Excuse: wakesOnly,
			Run:    withdrawsGrant,
		},
	}
}

func wakesOnly(p driver.Properties) string {
	return when(p.FirstSpan == 0, "the store only wakes waiters")
}

// span returns the longest lifetime of a grant that the store makes to a waiter of the backend b.
func (h *Harness) span(t T, b driver.Backend) time.Duration {
	start := time.Now()
	if inspect(t, b, "near"); time.Since(start) <= 60*time.Millisecond {
		return h.props.FirstSpan
	}
	return max(h.props.FirstSpan, 2*time.Second)
}

// queued returns a holder, and a waiter that is in the queue although its call of Wait has ended.
func (h *Harness) queued(t T, holder, waiter driver.Backend, name string) (first, next *attempt) {
	first = h.attempt(holder, name, h.lasting().TTL).must(t)
	next = h.attempt(waiter, name, h.lasting().TTL)
	next.enqueue(t)
	return first, next
}

func ownGrantEnds(t T, h *Harness) {
	const rounds = 4
	bs := h.backends(t, 2)
	span := h.span(t, bs[1])
	carried := 0
	for round := range rounds {
		holder, a := h.queued(t, bs[0], bs[1], fmt.Sprint("jobs ", round))
		var wg sync.WaitGroup
		wg.Go(func() {
			pause(t, rand.N(span))
			holder.mustRelease(t)
		})
		end := a.mustWaitAcquire(t)
		wg.Wait()
		if end.IsZero() {
			continue // the lock was granted by TryAcquire
		}
		carried++
		told := time.Now()
		if left := end.Sub(told); left > span {
			t.Errorf("a grant of the store ends in %v, where the first span is %v", left, span)
		}
		wantExpiry(t, h.attempt(bs[0], a.Name, h.lasting().TTL), end, told.Add(span+h.late()))
		wantNotHeld(t, a.renew(t), "renewing a grant that is over")
	}
	if carried == 0 {
		mistimed(t, rounds*span, "none of %d wake-ups carried a grant; the properties claim them, for %v", rounds, span)
	}
}

func asksForGrant(t T, h *Harness) {
	bs := h.backends(t, 2)
	holder, a := h.queued(t, bs[0], bs[1], "jobs")
	holder.mustRelease(t)
	a.must(t)
	h.wantHigher(t, a.Token, holder.Token)
	wantHeld(t, a.try(t), "TryAcquire by an owner whose grant is confirmed")
	throughout(t, h.span(t, bs[1])+h.late(), func() string {
		if at := inspect(t, bs[0], "jobs"); at.Owner != a.Owner || at.Token != a.Token {
			return "the grant that was asked for has not got its TTL: " + describe(at)
		}
		return ""
	})
	a.mustRenew(t)
	wantHeld(t, a.try(t), "TryAcquire by an owner that has renewed")
	a.mustRelease(t)

	holder, a = h.queued(t, bs[0], bs[1], "late")
	holder.mustRelease(t)
	pause(t, h.span(t, bs[1])+h.late())
	a.must(t)
	h.wantHigher(t, a.Token, holder.Token)
	a.wantHeldBy(t, "after asking when the store's own grant was over")
	a.mustRelease(t)
}

func goneCosts(t T, h *Harness) {
	bs := h.backends(t, 3)
	holder, _ := h.queued(t, bs[0], bs[1], "jobs")
	costsFirstSpan(t, h, holder, bs[2], func() {})
}

func frozenCosts(t T, h *Harness) {
	p, bs := h.Host(t, 0), h.backends(t, 2)
	holder := h.attempt(bs[0], "jobs", h.lasting().TTL).must(t)
	p.Enqueue(t, "jobs", h.lasting().TTL, h.ttl(time.Second))
	eventually(t, 5*time.Second, "the host is in the queue", func() bool { return inspect(t, bs[0], "jobs").Waiters != 0 })
	costsFirstSpan(t, h, holder, bs[1], func() {
		p.Freeze(t)
		t.Cleanup(func() { p.Resume(t) })
	})
}

// costsFirstSpan calls the function harm, after which a waiter no longer asks for the lock. The
// store may grant the lock to that waiter first, so another owner must get it within FirstSpan.
func costsFirstSpan(t T, h *Harness, holder *attempt, b driver.Backend, harm func()) {
	next := h.attempt(b, "jobs", h.lasting().TTL)
	const asks = 100 * time.Millisecond
	_, err := next.waitAcquire(t, asks)
	wantHeld(t, err, "waiting for a held lock")
	harm()
	holder.mustRelease(t)
	released := time.Now()
	for errors.Is(err, driver.ErrHeld) && ranSince(t, released) < h.lasting().TTL/2 {
		_, err = next.waitAcquire(t, asks)
	}
	wantNil(t, err, "waiting behind a waiter that is gone")
	wantWithin(t, released, time.Now(), h.span(t, b)+asks+h.late(), "the grant after the waiter that is gone")
}

func passedOver(t T, h *Harness) {
	p, c, b := h.Host(t, 0), h.client(t), h.Open(t)
	l := c.mustTry(t, "jobs", h.lasting())
	p.Enqueue(t, "jobs", h.lasting().TTL, 0)
	p.Freeze(t) // the host is frozen first, because it would restart a frozen plugin
	t.Cleanup(func() { p.Resume(t) })
	plugin := p.Plugin()
	plugin.Freeze(t)
	t.Cleanup(func() { plugin.Resume(t) })
	pause(t, 4*time.Second) // the store keeps a waiter's place in the queue for half of this time
	next := h.attempt(b, "jobs", h.lasting().TTL)
	next.enqueue(t)
	mustRelease(t, l)
	released := time.Now()
	next.mustWaitAcquire(t)
	wantWithin(t, released, time.Now(), h.late(), "the grant behind a waiter that is silent")
}

func withdrawsGrant(t T, h *Harness) {
	const rounds = 20
	bs := h.backends(t, 3)
	for round := range rounds {
		holder, a := h.queued(t, bs[0], bs[1], fmt.Sprint("jobs ", round))
		next := h.attempt(bs[2], a.Name, h.lasting().TTL)
		wantHeld(t, next.try(t), "TryAcquire of a held lock")
		var wg sync.WaitGroup
		var released time.Time
		wg.Go(func() {
			pause(t, rand.N(2*time.Millisecond))
			holder.mustRelease(t)
			released = time.Now()
		})
		wg.Go(func() {
			pause(t, time.Duration(round%2)*2*time.Millisecond)
			a.by(bs[round/2%2]).withdraw(t)
		})
		next.mustWaitAcquire(t)
		wg.Wait()
		wantWithin(t, released, time.Now(), h.late(), "the grant after a release and a withdrawal")
		if err := a.try(t); !errors.Is(err, driver.ErrWithdrawn) {
			t.Errorf("round %d: TryAcquire by a withdrawn owner: %v; want ErrWithdrawn", round, err)
		}
		next.wantHeldBy(t, "after the withdrawal of the waiter before it")
		next.mustRelease(t)
	}
}
