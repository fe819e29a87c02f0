package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

var (
	handing = []driver.Power{driver.PowerWaiter, driver.PowerHandover}
	waiting = []driver.Power{driver.PowerWaiter}
)

// lineUp starts n goroutines that acquire l one after the other, and returns
// the order in which they were granted it.
func lineUp(t *testing.T, l *Lock, n int, hold time.Duration) func() []int {
	var (
		mu    sync.Mutex
		order []int
		all   sync.WaitGroup
	)
	for i := range n {
		all.Go(func() {
			lease, err := l.Acquire(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			time.Sleep(hold)
			if err := lease.Release(context.Background()); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
	}
	return func() []int {
		all.Wait()
		return order
	}
}

func TestK5FirstComeFirstServed(t *testing.T) {
	for _, powers := range [][]driver.Power{nil, waiting, handing} {
		t.Run(fmt.Sprint(powers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(powers...)
				c, _ := open(t, f)
				l := lockOf(t, c, "a", nil)
				first := acquire(t, l)
				wait := lineUp(t, l, 30, 5*time.Millisecond)
				if n := f.count("acquire"); n > 1 {
					t.Errorf("%d questions to the store while this host holds the lock", n)
				}
				if err := first.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				if order := wait(); len(order) != 30 || !slices.IsSorted(order) {
					t.Errorf("granted in order %v", order)
				}
				if len(c.queues.shard("a").names) != 0 {
					t.Error("the queue's entry outlives its use")
				}
			})
		})
	}
}

func TestK5EightHandoversInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(handing...)
		c, rec := open(t, f)
		l := lockOf(t, c, "a", nil)
		first := acquire(t, l)
		wait := lineUp(t, l, 20, time.Millisecond)
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		wait()
		row, longest := 0, 0
		for _, call := range f.calls {
			switch call.op {
			case "handover":
				row++
			case "acquire", "release":
				row = 0
			}
			longest = max(longest, row)
		}
		if longest != maxStreak || f.count("handover") < 16 {
			t.Errorf("%d handovers, %d in a row", f.count("handover"), longest)
		}
		acquired := 0
		for _, k := range rec.kinds("a") {
			if k == EventAcquired {
				acquired++
			}
		}
		if acquired != 21 {
			t.Errorf("%d grants told, want 21", acquired)
		}
	})
}

func TestK5ForeignWaiterGetsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(handing...)
		here, _ := open(t, f)
		there, _ := open(t, f)
		l := lockOf(t, here, "a", nil)
		first := acquire(t, l)
		wait := lineUp(t, l, 30, 10*time.Millisecond)
		began := time.Now()
		var took time.Duration
		other := lineUp(t, lockOf(t, there, "a", nil), 1, 0)
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		other()
		took = time.Since(began)
		wait()
		if took > 300*time.Millisecond {
			t.Errorf("the other host waited %v for 30 holds of 10ms", took)
		}
	})
}

func TestHandedOverLeaseIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(handing...)
		c, _ := open(t, f)
		first := acquire(t, lockOf(t, c, "a", &LockOptions{TTL: 5 * time.Second}))
		second := make(chan *Lease)
		go func() {
			second <- acquire(t, lockOf(t, c, "a", &LockOptions{TTL: 20 * time.Second, Value: []byte("v")}))
		}()
		synctest.Wait()
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		lease := <-second
		h, err := c.Inspect(t.Context(), "a")
		if err != nil || h.Owner != lease.Owner() || h.Owner == first.Owner() || h.Token != lease.Token() ||
			h.Token <= first.Token() || string(h.Value) != "v" || h.TTL != 20*time.Second {
			t.Errorf("%+v, %v", h, err)
		}
		if left := time.Until(lease.Deadline()); left != 20*time.Second-202*time.Millisecond {
			t.Errorf("deadline in %v", left)
		}
		if !isDone(first.Done()) || isDone(lease.Done()) || first.State() != Released {
			t.Error("the wrong lease has ended")
		}
		time.Sleep(time.Minute)
		if !lease.Valid() {
			t.Errorf("the lease is not renewed: %v", lease.Err())
		}
	})
}

func TestHandoverWithoutAnswer(t *testing.T) {
	for _, done := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(handing...)
			c, _ := open(t, f)
			fail := func(_ context.Context, op string, _ driver.Request) error {
				if op == "handover" {
					return errDown
				}
				return nil
			}
			if done {
				f.after = fail
			} else {
				f.before = fail
			}
			l := lockOf(t, c, "a", nil)
			first := acquire(t, l)
			wait := lineUp(t, l, 3, time.Millisecond)
			if err := first.Release(t.Context()); err != nil {
				t.Errorf("handover done %v: %v", done, err)
			}
			if order := wait(); !slices.IsSorted(order) || len(order) != 3 {
				t.Errorf("handover done %v: order %v", done, order)
			}
			if owner := f.owner("a"); owner != "" {
				t.Errorf("handover done %v: %q still holds it", done, owner)
			}
		})
	}
}

func TestHandoverToOneThatGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(handing...)
		f.after = func(_ context.Context, op string, _ driver.Request) error {
			if op == "handover" {
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		}
		c, _ := open(t, f)
		l := lockOf(t, c, "a", nil)
		first := acquire(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error)
		go func() {
			_, err := l.Acquire(ctx)
			errs <- err
		}()
		synctest.Wait()
		time.AfterFunc(50*time.Millisecond, cancel)
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if owner := f.owner("a"); owner != "" {
			t.Errorf("%q still holds it", owner)
		}
	})
}

// TestSilentHandoverHoldsUpNobodyTwice: who gave up while a handover to it was
// under way is back a clean-up budget after its ctx, although the store is
// silent, and what is left is withdrawn later.
func TestSilentHandoverHoldsUpNobodyTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(handing...)
		var silent atomic.Bool
		f.before = func(ctx context.Context, _ string, _ driver.Request) error {
			if !silent.Load() {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		c, _ := open(t, f)
		l := lockOf(t, c, "a", nil)
		first := acquire(t, l)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		back := make(chan time.Duration)
		go func() {
			_, err := l.Acquire(ctx)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			end, _ := ctx.Deadline()
			back <- time.Since(end)
		}()
		synctest.Wait()
		silent.Store(true)
		released := make(chan struct{})
		go func() {
			_ = first.Release(ctx)
			close(released)
		}()
		if late := <-back; late > c.opts.CleanupBudget+2*grace {
			t.Errorf("Acquire came back %v after its context", late)
		}
		silent.Store(false)
		<-released
		time.Sleep(time.Minute)
		if owner := f.owner("a"); owner != "" {
			t.Errorf("%q still holds it", owner)
		}
	})
}

func TestLostLeaseLetsTheNextOneAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(handing...)
		c, _ := open(t, f)
		l := lockOf(t, c, "a", &LockOptions{TTL: time.Minute})
		first := acquire(t, l)
		wait := lineUp(t, l, 1, 0)
		began := time.Now()
		f.forget("a") // an operator; this host would find out with its next renewal
		wait()
		if took := time.Since(began); took > maxAsk {
			t.Errorf("the waiter asked again after %v", took)
		}
		if !errors.Is(first.Err(), ErrRevoked) {
			t.Errorf("the old lease: %v", first.Err())
		}
	})
}

func TestTryAcquireDoesNotOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, _ := open(t, f)
		l := lockOf(t, c, "a", nil)
		f.steal("a")
		f.expire("a", time.Now().Add(100*time.Millisecond))
		wait := lineUp(t, l, 1, 0)
		before := f.count("acquire")
		if _, err := l.TryAcquire(t.Context()); !errors.Is(err, ErrHeld) {
			t.Error(err)
		}
		if f.count("acquire") != before {
			t.Error("it asked for the lock before the one that waits")
		}
		wait()
	})
}
