package drivertest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

func handover(t T, from, next *attempt) error {
	return call(t, func(ctx context.Context) error {
		token, err := driver.HandoverOf(from.b).Handover(ctx, from.Request, next.Request)
		if err == nil {
			next.Token = token
		}
		return err
	})
}

func handoverOneStep(t T, h *Harness) {
	bs := h.backends(t, 2)
	a := h.attempt(bs[0], "jobs", h.lasting().TTL).must(t)
	var (
		stolen atomic.Uint64
		wg     sync.WaitGroup
	)
	ctx, cancel := context.WithCancel(t.Context())
	for range 3 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if thief := h.attempt(bs[1], "jobs", h.lasting().TTL); thief.try(t) == nil {
					stolen.Store(thief.Token)
					return
				}
				pause(t, breath)
			}
		})
	}
	for range 50 {
		next := h.attempt(bs[0], "jobs", h.lasting().TTL)
		err := handover(t, a, next)
		if err != nil || stolen.Load() != 0 {
			t.Errorf("Handover from token %d: %v; somebody else was granted token %d meanwhile", a.Token, err, stolen.Load())
			break
		}
		if next.Token <= a.Token && h.props.Fencing != driver.FencingNone {
			t.Errorf("Handover from token %d gives token %d", a.Token, next.Token)
		}
		a, next = next, a
		if err := next.renew(t); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("renewing the lease that was handed over: %v", err)
		}
	}
	cancel()
	wg.Wait()
	if stolen.Load() == 0 {
		a.wantHeldBy(t, "after 50 handovers")
	}
}

func handoverRefused(t T, h *Harness) {
	b := h.Open(t)
	a := h.attempt(b, "jobs", h.lasting().TTL).must(t)
	next := h.attempt(b, "jobs", h.lasting().TTL)
	stale := *a
	stale.Owner += "x"
	wantNotHeld(t, handover(t, &stale, next), "Handover from another owner")
	if h.props.Fencing != driver.FencingNone {
		stale = *a
		stale.Token++
		wantNotHeld(t, handover(t, &stale, next), "Handover from another token")
	}
	next.withdraw(t)
	if err := handover(t, a, next); !errors.Is(err, driver.ErrWithdrawn) {
		t.Errorf("Handover to a withdrawn owner: %v; want ErrWithdrawn", err)
	}
	a.wantHeldBy(t, "after refused handovers")
	if err := a.renew(t); err != nil {
		t.Errorf("renewing after refused handovers: %v", err)
	}
}

func handoverLimit(t T, h *Harness) {
	cs := h.clients(t, 2)
	l := cs[0].mustTry(t, "jobs", h.lasting())
	other := cs[1].start(t, "jobs", h.lasting())
	var grants atomic.Int32
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			// A backend that grants to everybody would keep this up for ever.
			for ctx.Err() == nil && grants.Load() < 1000 {
				mine, err := cs[0].acquire(ctx, t, "jobs", h.lasting())
				if err != nil {
					return
				}
				grants.Add(1)
				_ = mine.Release(context.WithoutCancel(ctx))
			}
		})
	}
	eventually(t, 5*time.Second, "another goroutine of the host waits", func() bool { return cs[0].saw(core.EventWaiting, "jobs") > 0 })
	// An Acquire has told that it waits before the store has heard of it.
	eventually(t, 5*time.Second, "the other host stands in the store's queue", func() bool {
		return inspect(t, cs[0].b, "jobs").Waiters != 0
	})
	if err := l.Release(t.Context()); err != nil {
		t.Fatalf("Release: %v", err)
	}
	eventually(t, 10*time.Second, "the other host gets the lock", other.ended)
	// Sampled after the grant, at which the host's next Acquire can only wait. Two
	// turns of the host are let pass: the other host may miss one on a busy
	// machine. That one turn has eight is a test of package core.
	if n := grants.Load(); n > 2*9 {
		t.Errorf("the lock was granted %d times in one host while another waited", n)
	}
	cancel()
	wg.Wait()
}
