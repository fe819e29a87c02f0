package drivertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

func withdrawCases() []Case {
	return []Case{
		{
			Name: "K3 a withdrawn owner is refused",
			Explain: `Finding nothing is no confirmation while an acquire may still be on its way. Once a withdrawal has returned nil, that
owner's acquire is refused however late it arrives, and that of any other owner is granted. The process that withdraws may not
be the one that asked, which may have died with the acquire on its way.`,
			Run: withdrawnRefused,
		},
		{
			Name: "K3 a withdrawal undoes a grant",
			Explain: `The reply to an acquire was lost, so its owner does not know the token: a withdrawal deletes that owner's grant
whatever its token.`,
			Run: withdrawalUndoes,
		},
		{
			Name:    "K3 a withdrawal leaves other owners alone",
			Explain: `A withdrawal compares the owner: an attempt that came to nothing must not free the lock of its holder.`,
			Run:     withdrawalSpares,
		},
		{
			Name: "K3 an acquire whose reply was lost owns nothing",
			Explain: `The store has granted the lock, the reply was lost and the caller gave up. Core withdraws that owner, and the lock is
free at once, not after its TTL.`,
			Run: replyLost,
		},
		{
			Name: "K3 what cannot be settled is indeterminate, with a time that holds",
			Explain: `When neither the acquire nor its withdrawal is answered, the error says so, with the latest time at which the lock is
free; nothing is granted on doubt, and from that time on the lock is free.`,
			Run: unclear,
		},
		{
			Name: "K3 acquires cancelled at random leave nothing and block no client",
			Explain: `Every acquire that was cancelled, before it was sent, in flight, in the queue or at the moment of its grant, leaves no
lock, no key, no place in a queue. The next client that asks is granted the lock, at the latest when an indeterminate error said.`,
			Limit: 5 * time.Minute,
			Run:   randomCancels,
		},
	}
}

func withdrawnRefused(t T, h *Harness) {
	bs := h.backends(t, 2)
	a := h.attempt(bs[0], "jobs", h.lasting().TTL)
	for _, b := range []driver.Backend{bs[1], bs[0]} {
		a.by(b).withdraw(t)
		if err := a.try(t); !errors.Is(err, driver.ErrWithdrawn) {
			t.Errorf("TryAcquire by withdrawn owner %s: token %d, %v; want ErrWithdrawn", a.Owner, a.Token, err)
		}
	}
	other := h.attempt(bs[1], "jobs", h.lasting().TTL).must(t)
	if err := a.try(t); !errors.Is(err, driver.ErrWithdrawn) {
		t.Errorf("TryAcquire of a held lock by a withdrawn owner: %v; want ErrWithdrawn", err)
	}
	other.wantHeldBy(t, "after a withdrawn owner asked")
}

func withdrawalUndoes(t T, h *Harness) {
	bs := h.backends(t, 2)
	a := h.attempt(bs[0], "jobs", h.lasting().TTL).must(t)
	a.by(bs[1]).withdraw(t)
	wantFree(t, bs[1], "jobs", "after the withdrawal of its holder")
	wantNotHeld(t, a.renew(t), "renewing a withdrawn grant")
	if err := a.try(t); !errors.Is(err, driver.ErrWithdrawn) {
		t.Errorf("TryAcquire by the withdrawn owner: %v; want ErrWithdrawn", err)
	}
	h.attempt(bs[1], "jobs", h.lasting().TTL).must(t)
}

func withdrawalSpares(t T, h *Harness) {
	a, others := waiters(t, h, 2)
	wantHeld(t, others[0].try(t), "TryAcquire of a held lock")
	others[0].withdraw(t)
	others[1].withdraw(t)
	a.wantHeldBy(t, "after the withdrawal of others")
	elsewhere := *a
	elsewhere.Name = "elsewhere"
	elsewhere.withdraw(t)
	a.wantHeldBy(t, "after its owner was withdrawn from another lock")
}

func replyLost(t T, h *Harness) {
	bs := h.backends(t, 2)
	c, g := h.injected(t, bs[0])
	sent := make(chan struct{}, 8)
	g.lost = func(ctx context.Context) error {
		sent <- struct{}{}
		<-ctx.Done()
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	l, err := c.acquire(ctx, t, "jobs", h.lasting())
	if err == nil {
		t.Fatalf("a lease with token %d was made of a lost reply", l.Token())
	}
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, core.ErrIndeterminate) {
		t.Errorf("want an error for the ctx, and a settled outcome: %v", err)
	}
	if len(sent) == 0 {
		t.Errorf("the acquire was not sent")
	}
	h.attempt(bs[1], "jobs", h.lasting().TTL).must(t)
}

func unclear(t T, h *Harness) {
	bs := h.backends(t, 2)
	c, g := h.injected(t, bs[0])
	answered := make(chan time.Time, 8)
	g.lost = func(context.Context) error {
		answered <- time.Now()
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, errCut)
	}
	g.cut.Store(true)
	ttl := h.ttl(2 * time.Second)
	l, err := c.try(t, "jobs", core.LockOptions{TTL: ttl})
	if err == nil {
		t.Fatalf("a lease with token %d was made of a lost reply", l.Token())
	}
	unclear, ok := errors.AsType[*core.IndeterminateError](err)
	if !ok || !errors.Is(err, core.ErrIndeterminate) {
		t.Fatalf("want an IndeterminateError, got %v", err)
	}
	// The store counts the TTL from the moment at which it handles the request, before it answers.
	if left := ran(t, <-answered, unclear.FreeAt); left > ttl+tolerance {
		t.Errorf("FreeAt is %v after the answer, with a TTL of %v", left, ttl)
	}
	other := h.attempt(bs[1], "jobs", h.lasting().TTL)
	eventually(t, time.Until(unclear.FreeAt)+h.late(), "the lock is free at FreeAt", func() bool { return other.try(t) == nil })
}

func randomCancels(t T, h *Harness) {
	cs, total := h.clients(t, 2), cmp.Or(h.Cancels, 300)
	nothingLeft := h.countLeft(t, cs[0].b)
	const workers, names = 10, 7
	var (
		mu    sync.Mutex
		doubt [names]time.Time // the latest end of a grant that may exist
		wg    sync.WaitGroup
		jobs  = make(chan int)
	)
	for range workers {
		wg.Go(func() {
			for i := range jobs {
				freeAt := cancelled(t, h, cs[i%2], fmt.Sprintf("jobs/%d", i%names))
				mu.Lock()
				if freeAt.After(doubt[i%names]) {
					doubt[i%names] = freeAt
				}
				mu.Unlock()
			}
		})
	}
	for i := range total {
		jobs <- i
	}
	close(jobs)
	wg.Wait()
	for i := range names {
		name := fmt.Sprintf("jobs/%d", i)
		limit := max(0, time.Until(doubt[i])) + h.late()
		next := h.attempt(cs[0].b, name, h.lasting().TTL)
		eventually(t, limit, fmt.Sprintf("%q is free after %d cancelled acquires%s", name, total, cs[0].holding(t, name)),
			func() bool { return next.try(t) == nil })
		next.mustRelease(t)
	}
	nothingLeft("cancelled acquires")
}

// cancelled cancels an Acquire. If a grant may exist, it returns the latest end of that grant.
func cancelled(t T, h *Harness, c *client, name string) (freeAt time.Time) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	timer := time.AfterFunc(rand.N(4*time.Millisecond), cancel)
	defer timer.Stop()
	lease, err := c.acquire(ctx, t, name, h.lasting())
	var doubt *core.IndeterminateError
	switch {
	case err == nil:
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("Release of token %d of %q: %v", lease.Token(), name, err)
		}
	case errors.As(err, &doubt):
		return doubt.FreeAt
	case !errors.Is(err, context.Canceled):
		t.Errorf("a cancelled Acquire of %q ended with %v", name, err)
	}
	return freeAt
}
