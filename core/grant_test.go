package core

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

const (
	ownSpan = 500 * time.Millisecond
	ownAge  = 100 * time.Millisecond // time from the waiter's last sign of life to the grant
)

// untilFirst is the time from the store's grant to the waiter's first renewal.
var untilFirst = (lifeOf(ownSpan) - ownAge) / 3

// The function granted makes the client c wait for a lock that another owner holds, and then frees
// the lock. So the store grants the lock to the waiter without an acquire.
func granted(t *testing.T, f *fake, c *Client, o *LockOptions) *Lease {
	t.Helper()
	return grantedTo(t, f, lockOf(t, c, "a", o))
}

func grantedTo(t *testing.T, f *fake, l *Lock) *Lease {
	t.Helper()
	f.steal("a")
	back := make(chan *Lease, 1)
	go func() {
		lease, err := l.Acquire(t.Context())
		if err != nil {
			t.Error(err)
		}
		back <- lease
	}()
	for synctest.Wait(); f.count("wait") == 0; synctest.Wait() {
		time.Sleep(time.Millisecond)
	}
	f.mu.Lock()
	delete(f.held, "a")
	close(f.changed)
	f.changed = make(chan struct{})
	f.mu.Unlock()
	return <-back
}

// withOwn runs a test with a store that grants a lock to a waiter without an acquire.
func withOwn(t *testing.T, test func(t *testing.T, f *fake, c *Client)) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(waiting...)
		f.own, f.age = ownSpan, ownAge
		f.before = func(_ context.Context, op string, _ driver.Request) error {
			if op == "renew" {
				time.Sleep(10 * time.Millisecond)
			}
			return nil
		}
		c, _ := open(t, f)
		test(t, f, c)
	})
}

// TestOwnGrant checks that the waiter sends no acquire after the grant. Until a renewal is
// confirmed, the lease's deadline is counted from the waiter's last sign of life before the grant.
// The renewal is sent when a third of the remaining time has passed.
func TestOwnGrant(t *testing.T) {
	withOwn(t, func(t *testing.T, f *fake, c *Client) {
		l := granted(t, f, c, nil)
		short := ownSpan - driftOf(ownSpan) - f.age
		if left := time.Until(l.Deadline()); left != short || !l.Valid() || l.State() != Held || f.count("acquire") != 1 {
			t.Errorf("%v are left, want %v; valid %t, %v, after %d acquires", left, short, l.Valid(), l.State(), f.count("acquire"))
		}
		time.Sleep(untilFirst - time.Millisecond)
		if n := f.count("renew"); n != 0 {
			t.Errorf("%d renewals before it is due", n)
		}
		time.Sleep(time.Millisecond + 1)
		synctest.Wait()
		if n := f.count("renew"); n != 1 {
			t.Errorf("%d renewals are under way", n)
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		if left, want := time.Until(l.Deadline()), defaultTTL-driftOf(defaultTTL)-10*time.Millisecond; left < want-time.Millisecond || left > want {
			t.Errorf("after the renewal %v are left, want %v", left, want)
		}
		time.Sleep(time.Minute)
		if n := f.count("renew"); !l.Valid() || n > 22 {
			t.Errorf("valid %t after %d renewals in a minute", l.Valid(), n)
		}
	})
}

// TestOwnGrantOfATerm checks that a term that the store grants to a candidate is renewed at once.
func TestOwnGrantOfATerm(t *testing.T) {
	withOwn(t, func(t *testing.T, f *fake, c *Client) {
		grantedTo(t, f, electorOf(t, c, "a", nil).lock)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if n := f.count("renew"); n != 1 {
			t.Errorf("%d renewals are under way", n)
		}
	})
}

// TestOwnGrantIsLost covers a lease whose renewals all fail. The lease must
// end before the store lets it expire.
func TestOwnGrantIsLost(t *testing.T) {
	for _, tc := range []struct {
		cause string
		fails error
		in    time.Duration
	}{
		{"revoked", &NotHeldError{}, untilFirst}, {"unreachable", ErrUnavailable, ownSpan - 100*time.Millisecond},
	} {
		withOwn(t, func(t *testing.T, f *fake, c *Client) {
			f.before = func(_ context.Context, op string, _ driver.Request) error {
				if op == "renew" {
					return tc.fails
				}
				return nil
			}
			began := time.Now()
			l := granted(t, f, c, nil)
			<-l.Done()
			if took := time.Since(began); took > tc.in || CauseName(l.Err()) != tc.cause {
				t.Errorf("lost after %v: %v", took, l.Err())
			}
		})
	}
}

// TestOwnGrantReleased checks that an early release needs no renewal. A release that starts during
// the first renewal must wait for that renewal's answer. If the renewal arrived after the release,
// it could lengthen a lease that a release with Keep has shortened.
func TestOwnGrantReleased(t *testing.T) {
	withOwn(t, func(t *testing.T, f *fake, c *Client) {
		l := granted(t, f, c, nil)
		time.Sleep(10 * time.Millisecond)
		if err := l.Release(t.Context()); err != nil || f.owner("a") != "" {
			t.Errorf("%v, and %q holds it", err, f.owner("a"))
		}
		time.Sleep(time.Second)
		if n := f.count("renew"); n > 0 {
			t.Errorf("renewed %d times", n)
		}
	})
	withOwn(t, func(t *testing.T, f *fake, c *Client) {
		l := granted(t, f, c, nil)
		time.Sleep(untilFirst + time.Millisecond)
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if owner := f.owner("a"); owner != "" || f.count("renew") != 1 || f.times("release")[0].Before(f.times("renew")[0].Add(10*time.Millisecond)) {
			t.Errorf("%q holds it after %d renewals", owner, f.count("renew"))
		}
	})
}

// TestOwnGrantThatIsAskedFor covers grants that core must confirm by an acquire. Either too little
// time is left, or the lock has AtLeast and so must stay taken even if this machine is lost.
func TestOwnGrantThatIsAskedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		age, atLeast time.Duration
	}{"old": {age: ownSpan / 2}, "over": {age: time.Minute}, "AtLeast": {atLeast: time.Second}} {
		t.Run(name, func(t *testing.T) {
			withOwn(t, func(t *testing.T, f *fake, c *Client) {
				f.age = tc.age
				l := granted(t, f, c, &LockOptions{AtLeast: tc.atLeast})
				if left := time.Until(l.Deadline()); left != defaultTTL-driftOf(defaultTTL) || f.count("acquire") != 2 {
					t.Errorf("%v are left after %d acquires", left, f.count("acquire"))
				}
				synctest.Wait()
				if n := f.count("renew"); n > 0 {
					t.Errorf("renewed %d times", n)
				}
			})
		})
	}
}

// TestOwnGrantIsHandedOver releases a lock before the first renewal of the store's grant has ended.
// If at least half of the grant's time is left, the next lease takes over deadline and renewal.
func TestOwnGrantIsHandedOver(t *testing.T) {
	withOwn(t, func(t *testing.T, f *fake, c *Client) {
		l := granted(t, f, c, nil)
		time.Sleep(untilFirst + time.Millisecond)
		deadline := l.Deadline()
		next := make(chan *Lease, 1)
		go func() { next <- acquire(t, l.lock) }()
		synctest.Wait()
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		n := <-next
		if !n.Deadline().Equal(deadline) || f.count("release") > 0 {
			t.Errorf("the deadline moved by %v, after %d releases", n.Deadline().Sub(deadline), f.count("release"))
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		if left := time.Until(n.Deadline()); left < 9*time.Second || f.count("renew") != 1 {
			t.Errorf("%v are left after %d renewals", left, f.count("renew"))
		}
	})
	withOwn(t, func(t *testing.T, f *fake, c *Client) {
		f.before = func(_ context.Context, op string, _ driver.Request) error {
			if op == "renew" {
				time.Sleep(ownSpan / 2)
			}
			return nil
		}
		l := granted(t, f, c, nil)
		next := make(chan *Lease, 1)
		go func() { next <- acquire(t, l.lock) }()
		time.Sleep(ownSpan/2 - 50*time.Millisecond)
		if err := l.Release(t.Context()); err != nil || f.count("release") != 1 {
			t.Errorf("%d releases, %v", f.count("release"), err)
		}
		<-next
	})
}

// TestOwnGrantOfFixedLength checks that one renewal gives a lease with NoRenew its TTL.
func TestOwnGrantOfFixedLength(t *testing.T) {
	withOwn(t, func(t *testing.T, f *fake, c *Client) {
		l := granted(t, f, c, &LockOptions{TTL: 2 * time.Second, NoRenew: true})
		time.Sleep(untilFirst + lifeOf(2*time.Second) + time.Millisecond)
		if late := time.Since(l.Deadline()); f.count("renew") != 1 || late != time.Millisecond-leadOf(2*time.Second) || !isDone(l.Done()) {
			t.Errorf("%v past its deadline, over %t, after %d renewals", late, isDone(l.Done()), f.count("renew"))
		}
	})
}

// TestOwnGrantBeforeItsHolderWorks checks that the first renewal does not
// call Healthy, because the holder may not have begun its work.
func TestOwnGrantBeforeItsHolderWorks(t *testing.T) {
	withOwn(t, func(t *testing.T, f *fake, c *Client) {
		var asked atomic.Int32
		l := granted(t, f, c, &LockOptions{Healthy: func(context.Context) error { asked.Add(1); return nil }})
		time.Sleep(time.Second)
		if n := asked.Load(); n > 0 || f.count("renew") != 1 {
			t.Errorf("asked %d times, renewed %d times", n, f.count("renew"))
		}
		time.Sleep(3 * time.Second)
		if n := asked.Load(); n != 1 || !l.Valid() {
			t.Errorf("asked %d times, valid %t", n, l.Valid())
		}
	})
}

// TestOwnGrantAtTheEndOfCtx checks that core withdraws a grant that comes when ctx ends.
func TestOwnGrantAtTheEndOfCtx(t *testing.T) {
	withOwn(t, func(t *testing.T, f *fake, c *Client) {
		f.steal("a")
		ctx, cancel := context.WithCancel(t.Context())
		back := make(chan error)
		go func() { _, err := lockOf(t, c, "a", nil).Acquire(ctx); back <- err }()
		synctest.Wait()
		cancel()
		f.forget("a")
		f.mu.Lock()
		close(f.changed)
		f.changed = make(chan struct{})
		f.mu.Unlock()
		if err := <-back; !errors.Is(err, context.Canceled) || errors.Is(err, ErrIndeterminate) {
			t.Error(err)
		}
		if owner := f.owner("a"); owner != "" || f.count("withdraw") == 0 {
			t.Errorf("%q holds it, after %d withdrawals", owner, f.count("withdraw"))
		}
	})
}

// TestOwnGrantOverASuspend covers a waiter whose last sign of life was sent before its machine was
// suspended. The waiter's Wait began after the suspend. The age of that sign does not include the
// suspend, so the sign seems too recent. So core must confirm the grant.
func TestOwnGrantOverASuspend(t *testing.T) {
	f := newFake(waiting...)
	f.own, f.age = ownSpan, 100*time.Millisecond
	c, _ := open(t, f)
	boot := &fakeBoot{base: time.Now()}
	c.clock.init(boot.read)
	boot.ahead.Store(int64(time.Second))
	c.clock.now()
	f.before = func(_ context.Context, op string, r driver.Request) error {
		if op == "acquire" && f.count("acquire") == 1 {
			return &HeldError{Holder: Holder{Owner: "another", TTL: time.Second}}
		}
		return nil
	}
	acquire(t, lockOf(t, c, "a", nil))
	if n := f.count("acquire"); n != 2 {
		t.Errorf("asked %d times", n)
	}
}

// TestOwnGrantFarAway checks that core confirms a grant by a renewal only if the time left is at
// least twice the duration of the last acquire. The renewal may take all the time left.
func TestOwnGrantFarAway(t *testing.T) {
	for _, tc := range []struct {
		rtt, renewal time.Duration
		asked        int
	}{{150 * time.Millisecond, 150 * time.Millisecond, 1}, {180 * time.Millisecond, 300 * time.Millisecond, 1}, {220 * time.Millisecond, 220 * time.Millisecond, 2}} {
		withOwn(t, func(t *testing.T, f *fake, c *Client) {
			f.before = func(ctx context.Context, op string, _ driver.Request) error {
				takes := map[string]time.Duration{"acquire": tc.rtt, "renew": tc.renewal}[op]
				if takes > 0 && !sleep(ctx, takes) {
					return ErrUnavailable
				}
				return nil
			}
			l := granted(t, f, c, nil)
			time.Sleep(time.Second)
			if n := f.count("acquire"); n != tc.asked || !l.Valid() {
				t.Errorf("%v away: asked %d times, valid %t: %v", tc.rtt, n, l.Valid(), l.Err())
			}
		})
	}
}

// TestOwnGrantReleasedInDoubt leaves the first renewal and the release unanswered. The renewal
// may have given the lease its whole TTL, so FreeAt must be at least a TTL after that renewal.
func TestOwnGrantReleasedInDoubt(t *testing.T) {
	withOwn(t, func(t *testing.T, f *fake, c *Client) {
		silent := make(chan struct{})
		f.hook(nil, func(ctx context.Context, op string, _ driver.Request) error {
			select {
			case <-silent:
				return nil
			default:
			}
			if op != "renew" && op != "release" {
				return nil
			}
			<-ctx.Done()
			return ErrUnavailable
		})
		l := granted(t, f, c, nil)
		renewed := time.Now().Add(untilFirst)
		time.Sleep(untilFirst + time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c.opts.CleanupBudget = 100 * time.Millisecond // less than the renewal may take
		err := l.Release(ctx)
		var unknown *IndeterminateError
		if !errors.As(err, &unknown) || unknown.FreeAt.Before(renewed.Add(defaultTTL)) {
			t.Errorf("%v", err)
		}
		close(silent)
	})
}

// TestWaitsFirst checks that a waiter calls Wait before TryAcquire only if another host had the
// lock recently and the store grants free locks to waiters.
func TestWaitsFirst(t *testing.T) {
	for _, tc := range []struct {
		span, pause time.Duration
		asked       int
	}{{ownSpan, 0, 1}, {0, 0, 2}, {ownSpan, wantedFor, 2}} {
		withOwn(t, func(t *testing.T, f *fake, c *Client) {
			f.props.FirstSpan = tc.span
			if err := granted(t, f, c, nil).Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(tc.pause)
			f.steal("a")
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if _, err := lockOf(t, c, "a", nil).Acquire(ctx); !errors.Is(err, ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("while it is held: %v", err)
			}
			if n := f.count("acquire"); n != tc.asked || f.count("wait") != 2 || f.count("withdraw") != 1 {
				t.Errorf("asked %d times, waited %d times, withdrawn %d times", n, f.count("wait"), f.count("withdraw"))
			}
			f.forget("a")
			if l := acquire(t, lockOf(t, c, "a", nil)); !l.Valid() || f.owner("a") != l.Owner() {
				t.Errorf("valid %t, and %q holds the free lock", l.Valid(), f.owner("a"))
			}
		})
	}
}
