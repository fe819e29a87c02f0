package core

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

func TestCloseReleasesEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(driver.CapWaiter, driver.CapWatcher)
		c, _ := open(t, f)
		l := lockOf(t, c, "a", nil)
		lease := acquire(t, l)
		for i := range 200 {
			acquire(t, lockOf(t, c, fmt.Sprint("n", i), nil))
		}
		waiter, leader := make(chan error), make(chan error)
		go func() {
			_, err := l.Acquire(context.Background())
			waiter <- err
		}()
		e := electorOf(t, c, "jobs", nil)
		changes := e.Observe(t.Context())
		go func() {
			leader <- e.Run(context.Background(), func(term *Term) {
				<-term.Context().Done()
				time.Sleep(5 * time.Second)
				if !term.Valid() {
					t.Error("the term was lost while its callback finished")
				}
			})
		}()
		synctest.Wait()
		f.hook(func(_ context.Context, op string, r driver.Request) error {
			if op == "release" && r.Name == "a" && (lease.Valid() || !isDone(lease.Done())) {
				t.Error("the store is asked to release a lease that its holder may still use")
			}
			return nil
		}, nil)
		closed := make(chan error, 2)
		for range 2 {
			go func() { closed <- c.Close(context.Background()) }()
		}
		for _, errs := range []chan error{waiter, leader} {
			if err := <-errs; !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		}
		for range 2 {
			if err := <-closed; err != nil {
				t.Error(err)
			}
		}
		for name := range f.held {
			t.Errorf("%q is still held", name)
		}
		if !f.closed || !isDone(lease.Done()) || !errors.Is(lease.Err(), ErrReleased) {
			t.Errorf("backend closed %v, cause %v", f.closed, lease.Err())
		}
		for range changes { // until Observe ends
		}
	})
}

func TestAfterClose(t *testing.T) {
	c, _ := open(t, newFake(driver.CapAdmin))
	l := lockOf(t, c, "a", nil)
	e := electorOf(t, c, "a", nil)
	lease := acquire(t, l)
	ctx := t.Context()
	if err := c.Close(ctx); err != nil {
		t.Fatal(err)
	}
	calls := map[string]func() error{
		"Check":      func() error { return c.Check(ctx) },
		"Lock":       func() error { _, err := c.Lock("a", nil); return err },
		"Elector":    func() error { _, err := c.Elector("a", nil); return err },
		"Inspect":    func() error { _, err := c.Inspect(ctx, "a"); return err },
		"Break":      func() error { return c.Break(ctx, "a", 1) },
		"Acquire":    func() error { _, err := l.Acquire(ctx); return err },
		"TryAcquire": func() error { _, err := l.TryAcquire(ctx); return err },
		"Campaign":   func() error { _, err := e.Campaign(ctx); return err },
		"Run":        func() error { return e.Run(ctx, func(*Term) {}) },
		"Leader":     func() error { _, err := e.Leader(ctx); return err },
		"Observe":    func() error { return (<-e.Observe(ctx)).Err },
		"List": func() error {
			for _, err := range c.List(ctx, "") {
				return err
			}
			return nil
		},
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := lease.Release(ctx); err != nil {
		t.Errorf("release of what Close has released: %v", err)
	}
}

func TestCloseOnAFrozenBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, _ := open(t, f)
		var leases []*Lease
		for i := range 300 {
			leases = append(leases, acquire(t, lockOf(t, c, fmt.Sprint(i), nil)))
		}
		f.hook(func(ctx context.Context, _ string, _ driver.Request) error {
			<-ctx.Done()
			return ctx.Err()
		}, nil)
		waiting := make(chan error)
		go func() {
			_, err := lockOf(t, c, "w", nil).Acquire(context.Background())
			waiting <- err
		}()
		synctest.Wait()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := c.Close(ctx)
		if took := time.Since(began); took > 2500*time.Millisecond {
			t.Errorf("Close took %v with a ctx of 1s", took)
		}
		if !errors.Is(err, ErrIndeterminate) {
			t.Errorf("Close: %v", err)
		}
		if err := <-waiting; !errors.Is(err, ErrClosed) || !errors.Is(err, ErrIndeterminate) {
			t.Errorf("Acquire: %v", err)
		}
		for _, l := range leases {
			if !isDone(l.Done()) || l.Valid() {
				t.Fatal("a lease outlives its client")
			}
		}
	})
}

// Many renewals that hang must not delay Close longer than one such renewal would.
func TestCloseWithRenewalsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(driver.CapBatcher)
		c, _ := open(t, f)
		for i := range 3 * releasers {
			acquire(t, lockOf(t, c, fmt.Sprint(i), &LockOptions{TTL: time.Minute}))
		}
		f.hook(func(ctx context.Context, _ string, _ driver.Request) error {
			<-ctx.Done()
			return ctx.Err()
		}, nil)
		time.Sleep(21 * time.Second) // all renewals are under way, and take 13 s
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := c.Close(ctx)
		if took := time.Since(began); took > 2500*time.Millisecond {
			t.Errorf("Close took %v with a ctx of 1s", took)
		}
		if !errors.Is(err, ErrIndeterminate) {
			t.Errorf("Close: %v", err)
		}
	})
}

// If some leases cannot be released, Close must still release all other leases.
func TestCloseTriesWhatOthersHoldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, _ := open(t, f)
		const stuck = 200
		for i := range 2 * stuck {
			acquire(t, lockOf(t, c, fmt.Sprint(i), nil))
		}
		f.hook(func(_ context.Context, _ string, r driver.Request) error {
			if len(r.Name) < 3 || r.Name < fmt.Sprint(stuck) {
				return fmt.Errorf("%w: the row is locked", driver.ErrUnavailable)
			}
			return nil
		}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		closed := make(chan error)
		go func() { closed <- c.Close(ctx) }()
		time.Sleep(time.Second / 2)
		synctest.Wait()
		f.mu.Lock()
		left := len(f.held)
		f.mu.Unlock()
		if left != stuck {
			t.Errorf("%d locks are still taken, want %d", left, stuck)
		}
		err := <-closed
		if want := fmt.Sprintf("(and %d more)", stuck-1); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("Close: %v, want %s", err, want)
		}
	})
}

// Run does not return the error of its last release. So if the lock is still taken, Close must
// return that error.
func TestCloseReportsWhatRunLeft(t *testing.T) {
	for name, comesBack := range map[string]bool{"the store stays away": false, "the store comes back": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				c, _ := open(t, f)
				ctx, cancel := context.WithCancel(t.Context())
				err := electorOf(t, c, "jobs", &ElectorOptions{TTL: time.Minute}).Run(ctx, func(*Term) {
					f.hook(func(context.Context, string, driver.Request) error { return driver.ErrUnavailable }, nil)
					cancel()
				})
				if !errors.Is(err, context.Canceled) {
					t.Errorf("Run: %v", err)
				}
				if comesBack {
					f.hook(nil, nil)
				}
				closing, stop := context.WithTimeout(t.Context(), 2*time.Second)
				defer stop()
				err = c.Close(closing)
				if taken := f.owner("jobs") != ""; taken == comesBack || taken != (err != nil) {
					t.Errorf("taken: %v, and Close returns %v", taken, err)
				}
				var named *Error
				if err != nil && (!errors.As(err, &named) || named.Name != "jobs") {
					t.Errorf("which lock? %v", err)
				}
			})
		})
	}
}

func TestQuestionsToAFrozenBackendEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(driver.CapAdmin)
		c, _ := open(t, f)
		term, err := electorOf(t, c, "jobs", &ElectorOptions{TTL: time.Minute}).Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f.hook(func(ctx context.Context, _ string, _ driver.Request) error {
			<-ctx.Done()
			return ctx.Err()
		}, nil)
		ctx := context.Background()
		calls := map[string]func() error{
			"Check":    func() error { return c.Check(ctx) },
			"Inspect":  func() error { _, err := c.Inspect(ctx, "a"); return err },
			"Break":    func() error { return c.Break(ctx, "a", 1) },
			"Proclaim": func() error { return term.Proclaim(ctx, nil) },
		}
		for name, ask := range calls {
			began := time.Now()
			if err := ask(); err == nil || time.Since(began) != maxLook {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
		}
	})
}

func TestAdmin(t *testing.T) {
	f := newFake(driver.CapAdmin)
	c, _ := open(t, f)
	one, two := acquire(t, lockOf(t, c, "one", nil)), acquire(t, lockOf(t, c, "two", nil))
	seen := map[string]bool{}
	for h, err := range c.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		seen[h.Name] = true
	}
	if !seen["one"] || !seen["two"] || len(seen) != 2 {
		t.Errorf("listed %v", seen)
	}
	for range c.List(t.Context(), "") {
		break
	}
	if err := c.Break(t.Context(), "one", one.Token()+100<<10); !errors.Is(err, ErrNotHeld) {
		t.Errorf("break by a wrong token: %v", err)
	}
	if err := c.Break(t.Context(), "one", one.Token()); err != nil || CauseName(one.Err()) != "revoked" {
		t.Errorf("%v, cause %v", err, one.Err())
	}
	if !two.Valid() {
		t.Error("the other lock broke, too")
	}
	plain, _ := open(t, newFake())
	if err := plain.Break(t.Context(), "one", 1); !errors.Is(err, ErrUnsupported) {
		t.Errorf("break without the capability: %v", err)
	}
	for _, err := range plain.List(t.Context(), "") {
		if !errors.Is(err, ErrUnsupported) {
			t.Errorf("list without the capability: %v", err)
		}
	}
	if err := c.Check(t.Context()); err != nil {
		t.Error(err)
	}
}
