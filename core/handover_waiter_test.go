package core

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// TestWaiterThatGivesUpPassesOn ends a waiter's ctx at a hand-over. The lock must not stay taken.
func TestWaiterThatGivesUpPassesOn(t *testing.T) {
	const rounds = 50
	synctest.Test(t, func(t *testing.T) {
		f := newFake(waiting...)
		c, rec := open(t, f)
		l := lockOf(t, c, "a", nil)
		gaveUp := 0
		for round := range rounds {
			first := acquire(t, l)
			ctx, cancel := context.WithCancel(t.Context())
			errs := make(chan error, 1)
			go func() {
				lease, err := l.Acquire(ctx)
				if err == nil {
					err = lease.Release(t.Context())
				}
				errs <- err
			}()
			synctest.Wait()
			others := round % 3
			wait := lineUp(t, l, others, 0)
			if err := first.Release(t.Context()); err != nil {
				t.Error(err)
			}
			cancel()
			if err := <-errs; errors.Is(err, context.Canceled) {
				gaveUp++
			} else if err != nil {
				t.Error(err)
			}
			if order := wait(); len(order) != others {
				t.Errorf("%v of %d others were served", order, others)
			}
			if owner := f.owner("a"); owner != "" {
				t.Fatalf("%q still holds it", owner)
			}
		}
		if gaveUp == 0 {
			t.Error("none gave up after the lock was handed to it")
		}
		ends := map[EventKind]int{}
		for _, k := range rec.kinds("a") {
			ends[k]++
		}
		if ends[EventAcquired] != ends[EventReleased] || ends[EventAcquireFailed] != gaveUp {
			t.Errorf("%d gave up: events %v", gaveUp, ends)
		}
	})
}

// TestGivenUpHandOverOfADownStore hands the lock over to a waiter whose ctx ends at that moment,
// while the store accepts no release. The grant then remains, and the waiter's error must say so.
func TestGivenUpHandOverOfADownStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(waiting...)
		c, _ := open(t, f)
		l := lockOf(t, c, "a", nil)
		first := acquire(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		back := make(chan error)
		go func() {
			_, err := l.Acquire(ctx)
			back <- err
		}()
		synctest.Wait()
		var down atomic.Bool
		down.Store(true)
		f.before = func(context.Context, string, driver.Request) error {
			if down.Load() {
				return fmt.Errorf("%w: %w", ErrUnavailable, driver.ErrNotSent)
			}
			return nil
		}
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		cancel()
		err := <-back
		var unknown *IndeterminateError
		if !errors.As(err, &unknown) || !errors.Is(err, context.Canceled) || f.owner("a") == "" {
			t.Fatalf("%v, and %q holds it", err, f.owner("a"))
		}
		if left := time.Until(unknown.FreeAt); left <= 0 || left > 11*time.Second {
			t.Errorf("free in %v", left)
		}
		down.Store(false)
		time.Sleep(time.Minute)
		if owner := f.owner("a"); owner != "" {
			t.Errorf("%q still holds it", owner)
		}
	})
}
