package core

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

func TestOptionsOutOfRangeAreRefused(t *testing.T) {
	for want, opts := range map[string]*Options{
		"CleanupBudget -1s is less than 0s":    {CleanupBudget: -time.Second},
		"Label has 257 bytes, allowed are 256": {Label: strings.Repeat("x", 257)},
		`Label "\xff" is not valid UTF-8`:      {Label: "\xff"},
	} {
		f := newFake()
		c := New(f, opts)
		_, lockErr := c.Lock("a", nil)
		_, electorErr := c.Elector("a", nil)
		for _, err := range []error{lockErr, electorErr, c.Check(t.Context())} {
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		}
		if err := c.Close(t.Context()); err != nil || !f.closed || len(f.calls) > 0 {
			t.Errorf("Close: %v, backend closed %v, calls %v", err, f.closed, f.calls)
		}
	}
}

// TestNoRenewIsALeaseOfFixedLength checks that a lease with NoRenew is never renewed, ends at
// its deadline, keeps the lock taken for AtLeast after a release, and can be ended by Break.
func TestNoRenewIsALeaseOfFixedLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(driver.CapWatcher, driver.CapAdmin)
		c, rec := open(t, f)
		fixed := &LockOptions{TTL: 10 * time.Second, AtLeast: 10 * time.Second, NoRenew: true}
		lease := acquire(t, lockOf(t, c, "a", fixed))
		synctest.Wait()
		f.notices <- driver.Notice{Kind: driver.NoticeDown, Plugin: true}
		f.notices <- driver.Notice{Kind: driver.NoticeUp, Plugin: true}
		time.Sleep(9 * time.Second)
		if !lease.Valid() || lease.State() != Held || f.count("renew") != 0 {
			t.Errorf("valid %v, state %v, %d renewals", lease.Valid(), lease.State(), f.count("renew"))
		}
		time.Sleep(time.Second)
		if lease.Valid() || CauseName(lease.Err()) != "expired" {
			t.Errorf("after the TTL: valid %v, cause %v", lease.Valid(), lease.Err())
		}
		synctest.Wait()
		rec.want(t, "a", EventAcquired, EventLost)

		lease = acquire(t, lockOf(t, c, "b", fixed))
		if err := lease.Release(t.Context()); err != nil || f.owner("b") == "" {
			t.Errorf("release within AtLeast: %v, held by %q", err, f.owner("b"))
		}
		other, _ := open(t, f)
		if err := other.Break(t.Context(), "b", lease.Token()); err != nil || f.owner("b") != "" {
			t.Errorf("break from elsewhere: %v, held by %q", err, f.owner("b"))
		}
	})
}

func TestNoRenewExcludesWhatNeedsRenewals(t *testing.T) {
	c, _ := open(t, newFake())
	for _, opts := range []*LockOptions{
		{NoRenew: true, RenewEvery: time.Second},
		{NoRenew: true, Healthy: func(context.Context) error { return nil }},
	} {
		if _, err := c.Lock("a", opts); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", opts, err)
		}
	}
}

// TestRefusalSaysThatThisProcessHoldsTheLock checks that a refusal says
// since when this process holds the lock, even if the store was not asked.
func TestRefusalSaysThatThisProcessHoldsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(driver.CapWaiter)
		c, _ := open(t, f)
		time.Sleep(time.Minute)
		l := lockOf(t, c, "a", nil)
		since := "held by this process since " + time.Now().Format("15:04:05.000") + ": lock is held by host:1 for another "
		lease := acquire(t, l)
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		waiting := make(chan error)
		for range 2 { // the head of this host's queue, and a waiter behind the head
			go func() {
				_, err := l.Acquire(ctx)
				waiting <- err
			}()
		}
		_, err := l.TryAcquire(t.Context())
		errs := []error{err, <-waiting, <-waiting}
		_, err = l.TryAcquire(t.Context())
		for _, err := range append(errs, err) {
			var held *HeldError
			if !errors.As(err, &held) || held.Holder.Owner != lease.Owner() || !strings.Contains(err.Error(), since) {
				t.Errorf("%v, want %q and owner %s", err, since, lease.Owner())
			}
		}
		f.steal("b")
		if _, err := lockOf(t, c, "b", nil).TryAcquire(t.Context()); strings.Contains(err.Error(), "this process") {
			t.Errorf("of a lock that a stranger holds: %v", err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
