package drivertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

func waitCases() []Case {
	return []Case{
		{
			Name: "K4 no two holders under contention",
			Explain: `After every wait the grant is decided by the store again: however many hosts and goroutines are woken, one holds the
lock at a time, and the tokens rise in the order of the grants.`,
			Run: noTwoHolders,
		},
		{
			Name: "K4 the expiry of a holder that is gone is noticed",
			Explain: `Expiry sends no wake-up. The head of the queue asks again when the remaining TTL of its refusal is over, so that it
gets the lock then and not at some later poll.`,
			Run: noticesExpiry,
		},
		{
			Name: "K4 no release is missed by a waiter",
			Explain: `A release that follows a refused TryAcquire wakes the caller's Wait, also when it falls between the two calls. A lost
wake-up leaves the lock unused until the next poll.`,
			Excuse: needsCapability(driver.CapWaiter),
			Limit:  2 * time.Minute,
			Run:    missesNothing,
		},
		{
			Name: "K4 wait returns when the lock is free, at its limit, and with its ctx",
			Explain: `Wait returns at once for a free lock, after its limit for a held one, and with ctx.Err() when the ctx ends, whichever
comes first: core asks the store after it and cleans up by it. Some waits may be woken for nothing, not each.`,
			Excuse: needsCapability(driver.CapWaiter),
			Run:    waitReturns,
		},
		{
			Name: "K4 a notifier tells of every release, and of little else",
			Explain: `From its first call on, Notify tells soon of each release and withdrawal, also of one in that moment: else the lock lies
unused for a second. While nothing happens to the lock it is silent, as each call is a question of each waiter.`,
			Excuse: needsCapability(driver.CapNotifier),
			Run:    notifies,
		},
		{
			Name: "K1 acquire waits for the release",
			Explain: `Acquire goes on until the lock is granted: not before its holder, in another host, has released it, and soon
after.`,
			Run: waitsForRelease,
		},
		{
			Name: "K1 acquire ends with its ctx",
			Explain: `Acquire ends when its ctx does, with an error that satisfies errors.Is for ctx.Err(). It then owns nothing and stands
in no other client's way.`,
			Run: endsWithCtx,
		},
	}
}

func noTwoHolders(t T, h *Harness) {
	cs := h.clients(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	var (
		inside  atomic.Int32
		last    atomic.Uint64
		started atomic.Int32
		wg      sync.WaitGroup
	)
	work := func(c *client) {
		for started.Add(1) <= 150 && ctx.Err() == nil {
			l, err := c.acquire(ctx, t, "jobs", h.lasting())
			wantNil(t, err, "Acquire under contention")
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d hold the lock; one of them has token %d, owner %s", n, l.Token(), l.Owner())
			}
			if before := last.Swap(l.Token()); before >= l.Token() {
				t.Errorf("token %d was granted after token %d", l.Token(), before)
			}
			pause(t, time.Millisecond)
			inside.Add(-1)
			mustRelease(t, l)
		}
	}
	for i := range 9 {
		wg.Go(func() { work(cs[i%3]) })
	}
	wg.Wait()
}

func noticesExpiry(t T, h *Harness) {
	cs := h.clients(t, 2)
	gone := h.attempt(cs[0].b, "jobs", h.ttl(1300*time.Millisecond)) // no multiple of the polling interval of 1 s
	sent := time.Now()
	gone.must(t)
	granted := time.Now()
	a := cs[1].start(t, "jobs", h.lasting())
	l := a.granted(t, gone.TTL+10*time.Second)
	if early := sent.Add(gone.TTL).Sub(a.at); early > time.Millisecond {
		t.Errorf("token %d was granted %v before the TTL of token %d was over", l.Token(), early, gone.Token)
	}
	wantWithin(t, granted.Add(gone.TTL), a.at, 2*h.late(), "the grant after the expiry")
}

func missesNothing(t T, h *Harness) {
	bs := h.backends(t, 2)
	const long = 5 * time.Second // a lost wake-up would delay the waiter for this time
	holder := h.attempt(bs[0], "jobs", h.lasting().TTL).must(t)
	for round := range 100 {
		waiter := h.attempt(bs[(round+1)%2], "jobs", h.lasting().TTL)
		wantHeld(t, waiter.try(t), "TryAcquire of a held lock")
		var wg sync.WaitGroup
		wg.Go(func() {
			pause(t, rand.N(400*time.Microsecond))
			holder.mustRelease(t)
		})
		took := time.Duration(0)
		for start := time.Now(); waiter.try(t) != nil; took = ranSince(t, start) {
			if took > long-time.Second {
				break
			}
			if _, err := waiter.wait(t, long); err != nil {
				t.Errorf("round %d: Wait: %v", round, err)
				break
			}
		}
		wg.Wait()
		if took > long-time.Second || waiter.Token == 0 {
			t.Fatalf("round %d: the waiter missed the release: it waited for %v and has token %d", round, took, waiter.Token)
		}
		holder = waiter
	}
}

func notifies(t T, h *Harness) {
	bs := h.backends(t, 2)
	for _, by := range []string{"release", "withdrawal", "release in the moment in which it hears"} {
		a := h.attempt(bs[0], "jobs", h.lasting().TTL).must(t)
		told := make(chan struct{}, 100)
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() {
			over <- driver.NotifierOf(bs[1]).Notify(ctx, a.Name, func() {
				select {
				case told <- struct{}{}:
				default:
				}
			})
		}()
		if _, ok := receive(t, told, 5*time.Second); !ok {
			t.Fatalf("Notify does not say in 5s that it hears")
		}
		if !strings.Contains(by, "moment") {
			pause(t, 500*time.Millisecond)
			if n := len(told); n > 3 {
				t.Errorf("Notify called %d times in 500ms in which nothing happened to the lock", n)
			}
			for len(told) > 0 {
				<-told
			}
		}
		if by == "withdrawal" {
			a.withdraw(t)
		} else {
			a.mustRelease(t)
		}
		if _, ok := receive(t, told, time.Second); !ok {
			mistimed(t, time.Second, "after 1s Notify has not told of the %s by owner %s", by, a.Owner)
		}
		cancel()
		if err, ok := receive(t, over, 5*time.Second); !errors.Is(err, context.Canceled) || !ok {
			t.Errorf("Notify ended with %v; want an error for its ctx", err)
		}
	}
}

func waitReturns(t T, h *Harness) {
	bs := h.backends(t, 2)
	free := h.attempt(bs[1], "free", h.lasting().TTL)
	start := time.Now()
	_, err := free.wait(t, 5*time.Second)
	if took := ranSince(t, start); err != nil || took > time.Second {
		t.Errorf("Wait for a free lock: %v after %v", err, took)
	}
	free.withdraw(t)
	h.attempt(bs[0], "jobs", h.lasting().TTL).must(t)
	a := h.attempt(bs[1], "jobs", h.lasting().TTL)
	const limit = 300 * time.Millisecond
	end := time.Now().Add(limit)
	hinted(t, a, func() bool {
		start := time.Now()
		most := time.Until(end)
		if _, err := a.wait(t, most); err != nil || ranSince(t, start) > most+time.Second {
			t.Errorf("Wait of at most %v for a held lock: %v after %v", most, err, time.Since(start))
		}
		return time.Until(end) < tolerance
	})
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	hinted(t, a, func() bool {
		start := time.Now()
		_, err := driver.WaiterOf(bs[1]).Wait(ctx, a.Request, time.Minute)
		if took := ranSince(t, start); err != nil && !errors.Is(err, context.DeadlineExceeded) || took > limit+time.Second {
			t.Errorf("Wait with a ctx of %v: %v after %v", limit, err, took)
		}
		return err != nil
	})
	a.withdraw(t)
	eventually(t, time.Second, "Inspect knows of no waiter after its withdrawal", func() bool {
		return inspect(t, bs[0], "jobs").Waiters <= 0
	})
}

// hinted calls TryAcquire for a held lock and then the function wait. If wait returns false,
// hinted calls both again, at most 3 times in all. Wait returns true if it ran until its timeout. A
// store may end one Wait without a release, for example if a member joins or leaves, but not three.
func hinted(t T, a *attempt, wait func() (over bool)) {
	const most = 3
	for range most {
		wantHeld(t, a.try(t), "TryAcquire of a held lock")
		if wait() {
			return
		}
	}
	t.Errorf("%d waits for a held lock were woken, though its holder did not release it", most)
}

func waitsForRelease(t T, h *Harness) {
	cs := h.clients(t, 2)
	l := cs[0].mustTry(t, "jobs", h.lasting())
	a := cs[1].start(t, "jobs", h.lasting())
	stillWait(t, 300*time.Millisecond, "another holds it", a)
	mustRelease(t, l)
	released := time.Now()
	next := a.granted(t, 5*time.Second)
	wantWithin(t, released, a.at, 1100*time.Millisecond, "the grant after the release") // the first waiter asks at least once a second
	if !next.Valid() {
		t.Errorf("the waiter's lease is not valid: %v", next.Err())
	}
}

func endsWithCtx(t T, h *Harness) {
	cs := h.clients(t, 2)
	l := cs[0].mustTry(t, "jobs", h.lasting())
	for _, want := range []error{context.DeadlineExceeded, context.Canceled} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if want == context.Canceled {
			ctx, cancel = context.WithCancel(t.Context())
			timer := time.AfterFunc(200*time.Millisecond, cancel)
			defer timer.Stop()
		}
		start := time.Now()
		lease, err := cs[1].acquire(ctx, t, "jobs", h.lasting())
		wantWithin(t, start, time.Now(), 1500*time.Millisecond, "an Acquire whose ctx lasted 200ms")
		cancel()
		if err == nil {
			t.Fatalf("Acquire got token %d while token %d is held", lease.Token(), l.Token())
		}
		if !errors.Is(err, want) {
			t.Errorf("want an error for %v, got %v", want, err)
		}
	}
	mustRelease(t, l)
	h.attempt(cs[0].b, "jobs", h.lasting().TTL).must(t)
}
