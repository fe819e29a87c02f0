package core

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

func TestL7ReleaseIsIdempotent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.before = func(context.Context, string, driver.Request) error {
			time.Sleep(10 * time.Millisecond)
			return nil
		}
		c, rec := open(t, f)
		lease := acquire(t, lockOf(t, c, "a", nil))
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if err := lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := f.count("release"); n != 1 || lease.State() != Released || !errors.Is(lease.Err(), ErrReleased) {
			t.Errorf("%d calls, state %v, cause %v", n, lease.State(), lease.Err())
		}
		rec.want(t, "a", EventAcquired, EventReleased)
	})
}

func TestL7ReleaseWithADeadContext(t *testing.T) {
	f := newFake()
	f.before = func(ctx context.Context, _ string, _ driver.Request) error { return ctx.Err() }
	c, _ := open(t, f)
	lease := acquire(t, lockOf(t, c, "a", nil))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := lease.Release(ctx); err != nil || f.owner("a") != "" {
		t.Errorf("%v, held by %q", err, f.owner("a"))
	}
}

func TestL7ReleaseDrainsRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		renewing := 0
		f.before = func(_ context.Context, op string, _ driver.Request) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			if op == "release" && renewing > 0 {
				t.Error("released while a renewal is under way")
			}
			if op == "renew" {
				renewing++
				f.mu.Unlock()
				time.Sleep(200 * time.Millisecond)
				f.mu.Lock()
				renewing--
			}
			return nil
		}
		c, _ := open(t, f)
		lease := acquire(t, lockOf(t, c, "a", nil))
		for f.count("renew") == 0 {
			time.Sleep(time.Millisecond)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if n := f.count("renew"); n != 1 {
			t.Errorf("%d renewals, want none after the release", n-1)
		}
	})
}

func TestL7ReleaseOfALostLeaseTellsWhoHoldsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, rec := open(t, f)
		lease := acquire(t, lockOf(t, c, "a", nil))
		f.steal("a")
		for range 2 {
			err := lease.Release(t.Context())
			var gone *NotHeldError
			if !errors.As(err, &gone) || gone.Holder.Label != "stranger:1" || !errors.Is(err, ErrNotHeld) {
				t.Error(err)
			}
		}
		if lease.State() != Lost || f.owner("a") != "stranger" {
			t.Errorf("state %v, held by %q", lease.State(), f.owner("a"))
		}
		rec.want(t, "a", EventAcquired, EventLost)
	})
}

func TestL7FailedReleaseCanBeRetried(t *testing.T) {
	for _, done := range []bool{false, true} { // whether the store did it, and only the reply was lost
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			c, rec := open(t, f)
			lease := acquire(t, lockOf(t, c, "a", nil))
			down := func(context.Context, string, driver.Request) error { return errDown }
			if done {
				f.hook(nil, down)
			} else {
				f.hook(down, nil)
			}
			began := time.Now()
			err := lease.Release(t.Context())
			var in *IndeterminateError
			if !errors.As(err, &in) || time.Since(began) > 1100*time.Millisecond {
				t.Fatalf("done %v, after %v: %v", done, time.Since(began), err)
			}
			if in.FreeAt.Before(began.Add(9*time.Second)) || in.FreeAt.After(began.Add(11*time.Second)) {
				t.Errorf("free at %v", in.FreeAt.Sub(began))
			}
			if lease.State() != Held || lease.Valid() || !isDone(lease.Done()) {
				t.Errorf("state %v, valid %v after a failed release", lease.State(), lease.Valid())
			}
			f.hook(nil, nil)
			if err := lease.Release(t.Context()); err != nil || lease.State() != Released || f.owner("a") != "" {
				t.Errorf("done %v: %v, state %v, held by %q", done, err, lease.State(), f.owner("a"))
			}
			rec.want(t, "a", EventAcquired, EventReleased)
		})
	}
}

func TestContextEndsWithTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := open(t, newFake())
		lease := acquire(t, lockOf(t, c, "a", nil))
		parent, cancelParent := context.WithCancelCause(t.Context())
		byParent, cancel1 := lease.Context(parent)
		byHand, cancel2 := lease.Context(t.Context())
		byLease, cancel3 := lease.Context(t.Context())
		defer cancel1()
		defer cancel3()
		mine := errors.New("mine")
		cancelParent(mine)
		cancel2()
		if context.Cause(byParent) != mine || context.Cause(byHand) != context.Canceled || byLease.Err() != nil {
			t.Errorf("causes %v, %v, %v", context.Cause(byParent), context.Cause(byHand), context.Cause(byLease))
		}
		if n := len(lease.cancels); n != 2 {
			t.Errorf("%d contexts are remembered, want 2", n)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		after, cancel4 := lease.Context(t.Context())
		defer cancel4()
		if !errors.Is(context.Cause(byLease), ErrReleased) || !errors.Is(context.Cause(after), ErrReleased) {
			t.Errorf("causes %v, %v", context.Cause(byLease), context.Cause(after))
		}
	})
}
