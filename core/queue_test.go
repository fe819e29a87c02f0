package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

var waiting = []driver.Capability{driver.CapWaiter}

// lineUp starts n goroutines, one after another. Each holds the lock l once, for the duration hold.
// The returned function waits for the goroutines and returns the order of the grants.
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
	for _, capabilities := range [][]driver.Capability{nil, waiting} {
		t.Run(fmt.Sprint(capabilities), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(capabilities...)
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

func TestK5OtherHostGetsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(waiting...)
		var (
			mu     sync.Mutex
			owners = map[string]bool{} // owner ids in the other host's requests
		)
		f.before = func(_ context.Context, op string, r driver.Request) error {
			if op == "acquire" && r.TTL == defaultTTL { // this host is slower than the other host
				time.Sleep(time.Millisecond)
			}
			if r.TTL == time.Second {
				mu.Lock()
				defer mu.Unlock()
				owners[r.Owner] = true
			}
			return nil
		}
		here, _ := open(t, f)
		there, _ := open(t, f)
		l := lockOf(t, here, "a", nil)
		first := acquire(t, l)
		wait := lineUp(t, l, 60, 10*time.Millisecond)
		began := time.Now()
		var took time.Duration
		other := lineUp(t, lockOf(t, there, "a", &LockOptions{TTL: time.Second}), 5, 0)
		if len(owners) != 1 {
			t.Errorf("the other host has %d places in the queue, with 5 goroutines", len(owners))
		}
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		other()
		took = time.Since(began)
		wait()
		if took > (minStreak+1)*10*time.Millisecond {
			t.Errorf("the other host waited %v for 60 holds of 10ms", took)
		}
	})
}

func TestLostLeaseLetsTheNextOneAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(waiting...)
		c, _ := open(t, f)
		l := lockOf(t, c, "a", &LockOptions{TTL: time.Minute})
		first := acquire(t, l)
		wait := lineUp(t, l, 1, 0)
		began := time.Now()
		f.forget("a") // the store loses the lease, and only the next renewal would report that
		wait()
		if took := time.Since(began); took > maxAsk {
			t.Errorf("the waiter asked again after %v", took)
		}
		if !errors.Is(first.Err(), ErrRevoked) {
			t.Errorf("the old lease: %v", first.Err())
		}
	})
}

type eager struct{ *fake }

func (e eager) Wait(ctx context.Context, r driver.Request, _ time.Duration) (driver.Grant, error) {
	return driver.Grant{}, e.do(ctx, "wait", r, func() error { return nil })
}

// If each call of Wait returns too early, the waiter must still pause between its requests.
func TestK4WokenForNothingDoesNotSpin(t *testing.T) {
	for _, tc := range []struct{ wait, acquire time.Duration }{
		{0, 0}, {0, 3 * time.Millisecond}, {3 * time.Millisecond, 3 * time.Millisecond}, {0, 20 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(waiting...)
			f.before = func(_ context.Context, op string, _ driver.Request) error {
				switch op {
				case "wait":
					time.Sleep(tc.wait)
				case "acquire":
					time.Sleep(tc.acquire)
				}
				return nil
			}
			c := New(eager{f}, nil)
			const held = 10 * time.Second
			f.steal("a")
			f.expire("a", time.Now().Add(held))
			lease := acquire(t, lockOf(t, c, "a", nil))
			if n := f.count("acquire"); n > 100 {
				t.Errorf("wait %v, acquire %v: asked %d times in %v", tc.wait, tc.acquire, n, held)
			}
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// If Wait fails but TryAcquire works, the waiter must pause between its requests. An event
// must report the failure once. When Wait works again, the waiter must use Wait again.
func TestFailedWaitIsPaced(t *testing.T) {
	for name, failure := range map[string]error{
		"refused":     fmt.Errorf("%w: no permission to subscribe", driver.ErrDenied),
		"unavailable": fmt.Errorf("%w: the shard of the channel is down", driver.ErrUnavailable),
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { failedWait(t, failure) }) })
	}
}

func failedWait(t *testing.T, failure error) {
	f := newFake(waiting...)
	f.before = func(_ context.Context, op string, _ driver.Request) error {
		if op == "wait" {
			return failure
		}
		return nil
	}
	c, rec := open(t, f)
	f.steal("a")
	granted := make(chan *Lease)
	go func() { granted <- acquire(t, lockOf(t, c, "a", nil)) }()
	time.Sleep(time.Second) // until the pauses have grown
	before := f.count("acquire") + f.count("wait")
	time.Sleep(10 * time.Second)
	if n := f.count("acquire") + f.count("wait") - before; n < 10 || n > 200 {
		t.Errorf("asked the store %d times in 10s", n)
	}
	rec.want(t, "a", EventWaiting, EventWaitFailed)
	if err := rec.last(t, "a").Err; !errors.Is(err, failure) {
		t.Errorf("the event says %v, want %v", err, failure)
	}

	f.hook(nil, nil)
	time.Sleep(maxAsk)
	freed := time.Now()
	if err := f.Break(t.Context(), "a", f.held["a"].r.Token); err != nil {
		t.Fatal(err)
	}
	(<-granted).Release(t.Context())
	if took := time.Since(freed); took != 0 {
		t.Errorf("waits work again, and it was woken after %v", took)
	}
}

// TestPlaceOfADeadPlugin checks a waiter whose plugin process has died. The waiter must withdraw
// its owner id and wait again under a new owner id.
func TestPlaceOfADeadPlugin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(append(waiting, driver.CapWatcher)...)
		c, _ := open(t, f)
		f.steal("a")
		granted := make(chan *Lease)
		go func() { granted <- acquire(t, lockOf(t, c, "a", nil)) }()
		time.Sleep(maxAsk / 2)
		var first string
		f.hook(func(_ context.Context, op string, r driver.Request) error {
			if op == "withdraw" {
				first = r.Owner
			}
			return nil
		}, nil)
		f.notices <- driver.Notice{Kind: driver.NoticeDown, Plugin: true}
		f.notices <- driver.Notice{Kind: driver.NoticeUp, Plugin: true}
		time.Sleep(maxAsk)
		f.forget("a")
		if l := <-granted; f.count("withdraw") != 1 || first == "" || l.Owner() == first {
			t.Errorf("%d withdrawals, of owner %q; granted to %q", f.count("withdraw"), first, l.Owner())
		}
	})
}

// TestWaitThatHangs checks that a waiter gives up a Wait that hangs, and asks the store again.
func TestWaitThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(waiting...)
		f.before = func(ctx context.Context, op string, _ driver.Request) error {
			if op == "wait" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		c, _ := open(t, f)
		f.steal("a")
		freed := time.Now()
		time.AfterFunc(time.Millisecond, func() { f.forget("a") })
		acquire(t, lockOf(t, c, "a", nil))
		if took := time.Since(freed); took > maxAsk+waitSlack+pollTo {
			t.Errorf("granted after %v", took)
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
