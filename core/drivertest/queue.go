package drivertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

func queueCases() []Case {
	waiter := needsCapability(driver.CapWaiter)
	return []Case{
		{
			Name:    "K5 a release wakes one waiter",
			Explain: `A release wakes one waiter, not all: with many of them the rest would ask the store only to be refused.`,
			Excuse:  waiter,
			Run:     wakesOne,
		},
		{
			Name: "K5 waiters of different hosts are granted in their order",
			Explain: `The backend claims FIFO: a free lock is kept for the waiter whose turn it is, and all others are refused until it
has come.`,
			Excuse: fifo,
			Run:    hostOrder,
		},
		{
			Name: "K5 a waiter that withdraws passes its turn on",
			Explain: `The backend claims FIFO. A waiter that gives up leaves the queue; if it had been woken the next one is woken in its
place. Else the lock is free and all waiters sleep.`,
			Excuse: fifo,
			Run:    passesOn,
		},
		{
			Name: "K5 a waiter between two waits keeps its place",
			Explain: `The backend claims FIFO. Core calls Wait at least once a second, so a place in the queue outlives each call by two
seconds: a waiter that has just returned from Wait comes before one that is asleep behind it.`,
			Excuse: fifo,
			Run:    keepsPlace,
		},
		{
			Name: "K5 a waiter that vanished loses its turn",
			Explain: `A place in the queue is kept for about two seconds without a Wait or TryAcquire. A waiter whose machine is gone must
not keep the lock from the others for longer.`,
			Excuse: waiter,
			Run:    vanished,
		},
		{
			Name: "K5 a host that hands a lock over lets others have their turn",
			Explain: `Handing the lock over inside a host is cheap, and starves the others: after 8 of them and 10 ms the lock is released
in the store, and a host that waits there gets it, as the backend claims FIFO.`,
			Excuse: fifo,
			Run:    othersTurn,
		},
	}
}

func fifo(p driver.Properties) string {
	return cmp.Or(when(!p.FIFO, "FIFO is not claimed"), needsCapability(driver.CapWaiter)(p))
}

// After the time settles, a new Wait is surely in the queue and waits until it is woken.
const settles = 300 * time.Millisecond

// The function queue starts a Wait in the background for each attempt in turn, and returns when all
// of them are in the queue. The function woken returns the indexes of the attempts whose Wait has
// returned since that time. An earlier return of Wait, for example while the host connects, does
// not count, because nothing woke the waiter.
func queue(t T, attempts []*attempt) (woken func() []int) {
	var (
		mu   sync.Mutex
		back []int
		wg   sync.WaitGroup
	)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); wg.Wait() })
	wait := func(i int) {
		a, r := attempts[i], attempts[i].Request
		wg.Go(func() {
			if _, err := driver.WaiterOf(a.b).Wait(ctx, r, 30*time.Second); err == nil {
				mu.Lock()
				defer mu.Unlock()
				back = append(back, i)
			}
		})
	}
	for i, a := range attempts {
		wantHeld(t, a.try(t), "TryAcquire of a held lock")
		known := inspect(t, a.b, a.Name).Waiters
		wait(i)
		if known >= 0 {
			eventually(t, 5*time.Second, fmt.Sprintf("waiter %d is in the queue", i), func() bool {
				return inspect(t, a.b, a.Name).Waiters == i+1
			})
		} else {
			pause(t, settles) // the store does not report the number of waiters
		}
	}
	woken = func() []int {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(back)
	}
	for range 5 { // at most 5 times, because a backend may end every Wait after a while
		pause(t, settles)
		mu.Lock()
		early := back
		back = nil
		mu.Unlock()
		for _, i := range early {
			wait(i)
		}
		if len(early) == 0 {
			break
		}
	}
	return woken
}

func waiters(t T, h *Harness, n int) (holder *attempt, all []*attempt) {
	bs := h.backends(t, n+1)
	holder = h.attempt(bs[0], "jobs", h.lasting().TTL).must(t)
	for i := range n {
		all = append(all, h.attempt(bs[i+1], "jobs", h.lasting().TTL))
	}
	return holder, all
}

func wakesOne(t T, h *Harness) {
	holder, all := waiters(t, h, 4)
	woken := queue(t, all)
	holder.mustRelease(t)
	eventually(t, 2*time.Second, "a waiter is woken", func() bool { return len(woken()) > 0 })
	first := woken()[0]
	h.wantTurn(t, first, all[first]) // otherwise the store may wake another waiter after FirstSpan
	throughout(t, 300*time.Millisecond, func() string {
		if who := woken(); len(who) > 1 {
			mistimed(t, h.props.FirstSpan, "one release has woken waiters %v of 4", who)
		}
		return ""
	})
}

// wantWoken waits until exactly the waiters in want are woken, in that order. The case fails if
// another waiter is woken, but runs again if a stall let a waiter miss its turn (FirstSpan).
func (h *Harness) wantWoken(t T, woken func() []int, when string, want ...int) {
	const limit = 2 * time.Second
	for start := time.Now(); ; pause(t, pollEvery) {
		who := woken()
		switch {
		case slices.Equal(who, want):
			return
		case !slices.Equal(who, want[:min(len(who), len(want))]):
			mistimed(t, h.props.FirstSpan, "after %s waiters %v should have been woken, and %v were", when, want, who)
		case ranSince(t, start) > limit:
			mistimed(t, limit, "%v after %s waiters %v should have been woken, and %v were", limit, when, want, who)
		}
	}
}

func (h *Harness) wantTurn(t T, waiter int, a *attempt) {
	switch err := a.try(t); {
	case errors.Is(err, driver.ErrHeld):
		mistimed(t, max(h.props.FirstSpan, 2*time.Second), "it is the turn of waiter %d, owner %s: %v", waiter, a.Owner, err)
	case err != nil:
		t.Fatalf("it is the turn of waiter %d, owner %s: %v", waiter, a.Owner, err)
	}
}

func hostOrder(t T, h *Harness) {
	holder, all := waiters(t, h, 4)
	woken := queue(t, all)
	for turn, a := range all {
		holder.mustRelease(t)
		h.wantWoken(t, woken, fmt.Sprintf("release %d", turn), []int{0, 1, 2, 3}[:turn+1]...)
		for i, other := range all[turn+1:] {
			if err := h.attempt(other.b, "jobs", other.TTL).try(t); !errors.Is(err, driver.ErrHeld) {
				t.Fatalf("it is the turn of waiter %d, and a stranger from the host of waiter %d asked: %v", turn, turn+1+i, err)
			}
		}
		h.wantTurn(t, turn, a)
		holder = a
	}
}

func passesOn(t T, h *Harness) {
	holder, all := waiters(t, h, 4)
	queued := queue(t, all)
	woken := func() []int { // without waiter 1, whose Wait the withdrawal may end
		return slices.DeleteFunc(queued(), func(i int) bool { return i == 1 })
	}
	all[1].withdraw(t)
	holder.mustRelease(t)
	h.wantWoken(t, woken, "the release", 0)
	all[0].withdraw(t)
	h.wantWoken(t, woken, "the withdrawal of waiter 0, which had been woken,", 0, 2)
	h.wantTurn(t, 2, all[2])
}

func keepsPlace(t T, h *Harness) {
	bs := h.backends(t, 3)
	holder, first := h.queued(t, bs[0], bs[1], "jobs")
	second := h.attempt(bs[2], "jobs", h.lasting().TTL)
	_, err := second.waitAcquire(t, 50*time.Millisecond)
	wantHeld(t, err, "waiting for a held lock")
	var wg sync.WaitGroup
	wg.Go(func() {
		pause(t, 50*time.Millisecond)
		holder.mustRelease(t)
	})
	_, err = second.waitAcquire(t, 200*time.Millisecond)
	wg.Wait()
	if err == nil {
		mistimed(t, 2*time.Second, "owner %s was granted the lock before owner %s, which was between two waits", second.Owner, first.Owner)
	}
	wantHeld(t, err, "waiting behind a waiter that is between two waits")
	h.wantTurn(t, 0, first)
}

func vanished(t T, h *Harness) {
	holder, all := waiters(t, h, 2)
	next := all[1] // all[0] vanishes
	for _, a := range all {
		a.enqueue(t)
	}
	holder.mustRelease(t)
	released := time.Now()
	eventually(t, 10*time.Second, "the next waiter is granted the lock", func() bool {
		if next.try(t) == nil {
			return true
		}
		_, err := next.wait(t, 200*time.Millisecond)
		wantNil(t, err, "Wait")
		return false
	})
	wantWithin(t, released, time.Now(), 4*time.Second, "the grant after the waiter that vanished")
}

// othersTurn counts the grants to one host, whose goroutines always want the lock, while a second
// host waits. After 9 grants, core lets another host have the lock. othersTurn allows 18 grants,
// because on a busy machine the second host may miss one such chance.
func othersTurn(t T, h *Harness) {
	const held = 5 * time.Millisecond
	cs := h.clients(t, 2)
	l := cs[0].mustTry(t, "jobs", h.lasting())
	other := cs[1].start(t, "jobs", h.lasting())
	var grants atomic.Int32
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			// If a faulty backend grants the lock to every host, only the limit of 1000 ends this loop.
			for ctx.Err() == nil && grants.Load() < 1000 {
				mine, err := cs[0].acquire(ctx, t, "jobs", h.lasting())
				if err != nil {
					return
				}
				grants.Add(1)
				pause(t, held)
				_ = mine.Release(context.WithoutCancel(ctx))
			}
		})
	}
	eventually(t, 5*time.Second, "another goroutine of the host waits", func() bool { return cs[0].saw(core.EventWaiting, "jobs") > 0 })
	// EventWaiting comes before the waiter is in the store's queue, so ask the store too.
	eventually(t, 5*time.Second, "the other host stands in the store's queue", func() bool {
		return inspect(t, cs[0].b, "jobs").Waiters != 0
	})
	mustRelease(t, l)
	eventually(t, 10*time.Second, "the other host gets the lock", other.ended)
	if n := grants.Load(); n > 2*9 {
		t.Errorf("the lock was granted %d times in one host while another waited", n)
	}
	cancel()
	wg.Wait()
}
