package core

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

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
		if cause := rec.last(t, "a").Err; !errors.Is(cause, ErrTaken) {
			t.Errorf("lost for %v, want %v", cause, ErrTaken)
		}
	})
}

func TestL7FailedReleaseCanBeRetried(t *testing.T) {
	for _, done := range []bool{false, true} { // whether the store released the lock, but its reply was lost
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
			dead, cancel := context.WithCancel(t.Context())
			cancel()
			err := lease.Release(dead)
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

// away makes every call to the backend f fail with err for the duration d.
func (f *fake) away(d time.Duration, err error) {
	f.hook(func(context.Context, string, driver.Request) error { return err }, nil)
	time.AfterFunc(d, func() { f.hook(nil, nil) })
}

var errNotSent = fmt.Errorf("%w: %w", ErrUnavailable, driver.ErrNotSent)

// TestL7ReleaseTriesAsLongAsItsContextLives checks that a release that
// begins in an outage of 2.2 s succeeds soon after the outage.
func TestL7ReleaseTriesAsLongAsItsContextLives(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context, c *Client, l *Lease) error{
		"Release": func(ctx context.Context, _ *Client, l *Lease) error { return l.Release(ctx) },
		"Close":   func(ctx context.Context, c *Client, _ *Lease) error { return c.Close(ctx) },
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			c, _ := open(t, f)
			lease := acquire(t, lockOf(t, c, "a", &LockOptions{TTL: 20 * time.Second}))
			f.away(2200*time.Millisecond, errDown)
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if err := end(ctx, c, lease); err != nil || f.owner("a") != "" {
				t.Errorf("%s: %v, held by %q", name, err, f.owner("a"))
			}
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("%s took %v, the store was away for 2.2s", name, took)
			}
		})
	}
}

// TestL7ReleaseGoesOnInTheBackground checks that after a failed Release, the client releases the
// lock when the store answers again.
func TestL7ReleaseGoesOnInTheBackground(t *testing.T) {
	hold := func(t *testing.T, c *Client) *Lock { return lockOf(t, c, "a", &LockOptions{TTL: 20 * time.Second}) }
	release := func(t *testing.T, ctx context.Context, c *Client, down func()) (*Lease, error) {
		lease := acquire(t, hold(t, c))
		down()
		return lease, lease.Release(ctx)
	}
	do := func(t *testing.T, ctx context.Context, c *Client, down func()) (lease *Lease, err error) {
		err = hold(t, c).Do(ctx, func(ctx context.Context, l *Lease) error {
			lease = l
			down()
			<-ctx.Done()
			return nil
		})
		return lease, err
	}
	resign := func(t *testing.T, ctx context.Context, c *Client, down func()) (*Lease, error) {
		term, err := electorOf(t, c, "a", &ElectorOptions{TTL: 20 * time.Second}).Campaign(ctx)
		if err != nil {
			t.Fatal(err)
		}
		down()
		return term.lease, term.Resign(ctx)
	}
	run := func(t *testing.T, ctx context.Context, c *Client, down func()) (lease *Lease, err error) {
		return lease, electorOf(t, c, "a", &ElectorOptions{TTL: 20 * time.Second}).Run(ctx, func(term *Term) {
			lease = term.lease
			down()
			<-term.Context().Done()
		})
	}
	for name, end := range map[string]func(*testing.T, context.Context, *Client, func()) (*Lease, error){
		"Release": release, "Do": do, "Resign": resign, "Run": run,
	} {
		for _, down := range []error{errDown, errNotSent, ErrDenied} {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				c, rec := open(t, f)
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				var since time.Time
				lease, err := end(t, ctx, c, func() {
					since = time.Now()
					f.away(5*time.Second, down)
				})
				took := time.Since(since)
				if name == "Run" {
					synctest.Wait() // a separate goroutine delivers events
					err = rec.last(t, "a").Err
				}
				if took > 1600*time.Millisecond || !errors.Is(err, down) {
					t.Errorf("%s: %v after %v, with a ctx of 500ms and a budget of 1s", name, err, took)
				}
				// errNotSent and ErrDenied mean that the lock is still taken.
				if unknown := down == errDown; errors.Is(err, ErrIndeterminate) != unknown {
					t.Errorf("%s: %v", name, err)
				}
				time.Sleep(5*time.Second + janitorPause - time.Since(since))
				synctest.Wait()
				if owner := f.owner("a"); owner != "" {
					t.Errorf("%s, %v: still held by %q after the outage", name, down, owner)
				}
				n := len(f.calls)
				if err := lease.Release(t.Context()); err != nil || lease.State() != Released || len(f.calls) != n {
					t.Errorf("%s: a later Release: %v, state %v, %d calls", name, err, lease.State(), len(f.calls)-n)
				}
				rec.want(t, "a", EventAcquired, EventReleased)
			})
		}
	}
}

// Background attempts to release a lease must end when the lease expires or Close releases it.
func TestL7BackgroundReleaseEnds(t *testing.T) {
	for _, closing := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			c, _ := open(t, f)
			lease := acquire(t, lockOf(t, c, "a", nil))
			dead, cancel := context.WithCancel(t.Context())
			cancel()
			f.away(time.Hour, errDown)
			if err := lease.Release(dead); !errors.Is(err, ErrIndeterminate) {
				t.Error(err)
			}
			if closing {
				f.away(2*time.Second, errDown)
				if err := c.Close(t.Context()); err != nil || f.owner("a") != "" {
					t.Errorf("Close: %v, held by %q", err, f.owner("a"))
				}
				return
			}
			time.Sleep(20 * time.Second)
			before := f.count("release")
			time.Sleep(time.Minute)
			if n := f.count("release") - before; n > 0 {
				t.Errorf("%d tries after the time at which the lease is over", n)
			}
		})
	}
}

// TestL7NothingIsKeptOfReleases checks that a client keeps no lease in memory after its release.
func TestL7NothingIsKeptOfReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, _ := open(t, f)
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		held := make([]*Lease, 4)
		for i := range held {
			held[i] = acquire(t, lockOf(t, c, fmt.Sprint(i), nil))
		}
		f.away(5*time.Second, errDown)
		var leases []weak.Pointer[Lease]
		for _, lease := range held {
			leases = append(leases, weak.Make(lease))
			if err := lease.Release(dead); !errors.Is(err, ErrIndeterminate) {
				t.Error(err)
			}
		}
		held = nil
		time.Sleep(time.Minute)
		runtime.GC()
		for i, lease := range leases {
			if lease.Value() != nil {
				t.Errorf("the client keeps lease %d", i)
			}
		}
	})
}

// TestL7ReleaseDoesNotWaitForAnother checks that a second Release returns soon after its ctx ends.
func TestL7ReleaseDoesNotWaitForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, _ := open(t, f)
		lease := acquire(t, lockOf(t, c, "a", nil))
		f.away(5*time.Second, errDown)
		first := make(chan error)
		go func() { first <- lease.Release(context.Background()) }()
		synctest.Wait()
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		if err := lease.Release(dead); err == nil || time.Since(began) > 1100*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
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

// TestReleaseInBackground checks that with ReleaseInBackground, Do ends its lease and returns
// before the release is done. Close must wait for the release. An event must report a failed try.
func TestReleaseInBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.before = func(ctx context.Context, op string, _ driver.Request) error {
			if op == "release" && f.count("release") < 3 {
				sleep(ctx, time.Second)
				return ErrUnavailable
			}
			return nil
		}
		var told []Event
		c := New(f, &Options{OnEvent: func(ev Event) {
			if ev.Kind == EventReleased {
				told = append(told, ev)
			}
		}})
		l := lockOf(t, c, "a", &LockOptions{ReleaseInBackground: true})
		began, done := time.Now(), (<-chan struct{})(nil)
		ctx, cancel := context.WithCancel(t.Context())
		err := l.Do(ctx, func(_ context.Context, lease *Lease) error { done = lease.Done(); return nil })
		cancel()
		<-done
		if err != nil || time.Since(began) > 0 || f.owner("a") == "" {
			t.Errorf("back after %v: %v; %q holds it", time.Since(began), err, f.owner("a"))
		}
		if err := c.Close(t.Context()); err != nil || f.owner("a") != "" {
			t.Errorf("closed: %v; %q holds it", err, f.owner("a"))
		}
		if len(told) != 1 || !errors.Is(told[0].Err, ErrIndeterminate) {
			t.Errorf("told of %v", told)
		}
	})
}
