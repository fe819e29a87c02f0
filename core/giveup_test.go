package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// TestK3CancelLeavesNothing cancels an acquire at many moments while a slow
// store answers, and checks that no grant is left in the store.
func TestK3CancelLeavesNothing(t *testing.T) {
	for _, capabilities := range [][]driver.Capability{nil, {driver.CapWaiter}} {
		for at := time.Duration(0); at <= 130*time.Millisecond; at += 5 * time.Millisecond {
			for _, held := range []bool{false, true} {
				name := fmt.Sprintf("capabilities %v cancelled after %v held %v", capabilities, at, held)
				synctest.Test(t, func(t *testing.T) {
					f := newFake(capabilities...)
					slow := func(ctx context.Context, op string, _ driver.Request) error {
						if op != "acquire" {
							return nil
						}
						select {
						case <-time.After(40 * time.Millisecond):
						case <-ctx.Done():
							return ctx.Err()
						}
						return nil
					}
					f.before, f.after = slow, slow
					c, _ := open(t, f)
					if held {
						f.steal("a")
						f.expire("a", time.Now().Add(60*time.Millisecond))
					}
					ctx, cancel := context.WithTimeout(t.Context(), at)
					defer cancel()
					lease, err := lockOf(t, c, "a", nil).Acquire(ctx)
					if err == nil {
						if err := lease.Release(t.Context()); err != nil {
							t.Error(err)
						}
					} else if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s: %v", name, err)
					}
					time.Sleep(200 * time.Millisecond)
					if owner := f.owner("a"); owner != "" {
						t.Errorf("%s: still held by %q", name, owner)
					}
					if names := c.queues.shard("a").names; len(names) != 0 {
						t.Errorf("%s: queues %v", name, names)
					}
				})
			}
		}
	}
}

func TestK3LostReplyIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		lost := 3
		f.after = func(_ context.Context, op string, _ driver.Request) error {
			if op == "acquire" && lost > 0 {
				lost--
				return errDown
			}
			return nil
		}
		c, _ := open(t, f)
		l := lockOf(t, c, "a", nil)
		if _, err := l.TryAcquire(t.Context()); !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrIndeterminate) {
			t.Errorf("TryAcquire: %v", err)
		}
		if f.owner("a") != "" || f.count("withdraw") != 1 {
			t.Errorf("held by %q after %d withdrawals", f.owner("a"), f.count("withdraw"))
		}
		began := time.Now()
		lease := acquire(t, l)
		if took := time.Since(began); took > time.Second || f.owner("a") != lease.Owner() {
			t.Errorf("Acquire took %v, the store has %q", took, f.owner("a"))
		}
	})
}

func TestK3IndeterminateNamesATimeThatHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.after = func(_ context.Context, op string, _ driver.Request) error {
			if op == "acquire" {
				f.hook(func(context.Context, string, driver.Request) error { return errDown }, nil)
				return errDown
			}
			return nil
		}
		c, _ := open(t, f)
		began := time.Now()
		_, err := lockOf(t, c, "a", &LockOptions{TTL: 5 * time.Second}).TryAcquire(t.Context())
		var in *IndeterminateError
		if !errors.As(err, &in) || !errors.Is(err, ErrIndeterminate) || !errors.Is(err, ErrUnavailable) {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 1100*time.Millisecond {
			t.Errorf("took %v, the clean-up budget is 1s", took)
		}
		if in.FreeAt.Before(f.held["a"].expires) || in.FreeAt.After(began.Add(6*time.Second)) {
			t.Errorf("free at %v after the start, expires at %v", in.FreeAt.Sub(began), f.held["a"].expires.Sub(began))
		}
		// The client goes on trying to withdraw the owner, so the lock is free soon
		// after the store answers again.
		f.hook(nil, nil)
		time.Sleep(janitorPause)
		synctest.Wait()
		if owner := f.owner("a"); owner != "" {
			t.Errorf("still held by %q", owner)
		}
	})
}

func TestK3JanitorEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.before = func(context.Context, string, driver.Request) error { return errDown }
		c, _ := open(t, f)
		l := lockOf(t, c, "a", &LockOptions{TTL: 5 * time.Second})
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, err := l.TryAcquire(t.Context()); !errors.Is(err, ErrIndeterminate) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		time.Sleep(6 * time.Second)
		before := f.count("withdraw")
		time.Sleep(time.Minute)
		if after := f.count("withdraw"); after != before {
			t.Errorf("%d withdrawals after the time at which all is free", after-before)
		}
	})
}

// If a store needs seconds for each request, a waiter must keep its place in the queue. The waiter
// must get the lock by its first acquire after the end of the holder's lease.
func TestK4SlowStoreServesWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(driver.CapWaiter)
		const slow = 2500 * time.Millisecond
		f.before = func(ctx context.Context, op string, _ driver.Request) error {
			if op == "wait" {
				return nil
			}
			select {
			case <-time.After(slow):
			case <-ctx.Done():
				return ctx.Err()
			}
			return nil
		}
		c, _ := open(t, f)
		const held = 5 * time.Second
		f.steal("a")
		f.expire("a", time.Now().Add(held))
		began := time.Now()
		acquire(t, lockOf(t, c, "a", &LockOptions{TTL: 10 * time.Second}))
		if took := time.Since(began); took > held+maxAsk+slow {
			t.Errorf("it took %v", took)
		}
		if n := f.count("withdraw"); n != 0 {
			t.Errorf("%d withdrawals: the waiter has lost its place", n)
		}
	})
}

func TestK3WaiterLeavesTheStoresQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(driver.CapWaiter)
		c, _ := open(t, f)
		f.steal("a")
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		if _, err := lockOf(t, c, "a", nil).Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if f.count("withdraw") != 1 {
			t.Errorf("calls %v", f.calls)
		}
		if n := f.count("acquire"); n != 3 {
			t.Errorf("%d questions in 2.5s of waiting, want one a second", n)
		}
	})
}

func TestK1FrozenBackendDoesNotHoldUpTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.before = func(ctx context.Context, _ string, _ driver.Request) error {
			<-ctx.Done()
			return ctx.Err()
		}
		c, _ := open(t, f)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := lockOf(t, c, "a", nil).Acquire(ctx)
		if took := time.Since(began); took > 2100*time.Millisecond {
			t.Errorf("Acquire returned %v after its ctx ended", took-time.Second)
		}
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrIndeterminate) {
			t.Error(err)
		}
	})
}

// TestK3WithdrawnFromTheQueueInDoubt covers a caller that gives up while it waits in the store's
// queue, and whose withdrawal gets no answer. A store that grants locks to waiters may have granted
// the lock to it. A store that only wakes waiters has not.
func TestK3WithdrawnFromTheQueueInDoubt(t *testing.T) {
	for _, span := range []time.Duration{0, ownSpan, 3 * time.Second} {
		withOwn(t, func(t *testing.T, f *fake, c *Client) {
			f.props.FirstSpan = span
			f.steal("a")
			f.before = func(ctx context.Context, op string, _ driver.Request) error {
				if op == "withdraw" && f.count(op) < 8 {
					<-ctx.Done()
					return ErrUnavailable
				}
				return nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := lockOf(t, c, "a", nil).Acquire(ctx)
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrHeld) {
				t.Errorf("%v: %v", span, err)
			}
			var unknown *IndeterminateError
			if errors.As(err, &unknown) != (span > 0) || span > 0 && time.Until(unknown.FreeAt) != max(span, farSpan) {
				t.Errorf("%v: %v", span, err)
			}
		})
	}
}
