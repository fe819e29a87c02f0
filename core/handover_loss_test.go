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

// TestSuspendInAStreak checks that a lease that expired while the machine was suspended is
// not handed over to the host's next waiter, although no timer has noticed the lease's end.
func TestSuspendInAStreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(waiting...)
		c, _ := open(t, f)
		boot := &fakeBoot{base: c.clock.base}
		c.clock.boot = boot.read
		l := lockOf(t, c, "a", nil)
		second := handOn(t, acquire(t, l), next(t, l))
		waiter := next(t, l)
		boot.ahead.Store(int64(time.Minute))
		f.forget("a") // the lease expired in the store
		if err := second.Release(t.Context()); !errors.Is(err, ErrNotHeld) {
			t.Errorf("releasing what has expired: %v", err)
		}
		if third := <-waiter; third.Owner() == second.Owner() || !third.Valid() {
			t.Errorf("after the suspend the lock was handed on, valid %t", third.Valid())
		}
	})
}

// TestLossInAStreak covers a grant that is lost after the lock was handed over inside the host. The
// lease that then has the lock must end, however the host learns of the loss.
func TestLossInAStreak(t *testing.T) {
	for name, tc := range map[string]struct {
		lose  func(t *testing.T, f *fake, l *Lease)
		cause error
	}{
		"renewal finds nothing": {func(_ *testing.T, f *fake, _ *Lease) { f.forget("a") }, ErrRevoked},
		"renewal finds another": {func(_ *testing.T, f *fake, _ *Lease) { f.steal("a") }, ErrTaken},
		"notice": {func(_ *testing.T, f *fake, l *Lease) {
			f.notices <- driver.Notice{Kind: driver.NoticeLost, Name: "a", Owner: l.Owner(), Token: GrantNumber(l.Token())}
		}, ErrRevoked},
		"plugin dies with the store": {func(_ *testing.T, f *fake, _ *Lease) {
			f.notices <- driver.Notice{Kind: driver.NoticeDown, Plugin: true}
		}, ErrPluginDied},
		"break": {func(t *testing.T, f *fake, l *Lease) {
			if err := l.c.Break(t.Context(), "a", l.Token()); err != nil {
				t.Error(err)
			}
		}, ErrRevoked},
		"break of the token before": {func(t *testing.T, f *fake, l *Lease) {
			if err := l.c.Break(t.Context(), "a", l.Token()-1); err != nil {
				t.Error(err)
			}
		}, ErrRevoked},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(driver.CapWaiter, driver.CapWatcher, driver.CapAdmin)
				f.props.SurvivesPlugin = false
				c, _ := open(t, f)
				l := lockOf(t, c, "a", nil)
				first := acquire(t, l)
				second := handOn(t, first, next(t, l))
				waiter := next(t, l)
				tc.lose(t, f, second)
				select {
				case <-second.Done():
				case <-time.After(time.Minute):
				}
				if !errors.Is(second.Err(), tc.cause) || !errors.Is(first.Err(), ErrReleased) {
					t.Errorf("causes %v and %v, want %v for the second", first.Err(), second.Err(), tc.cause)
				}
				f.forget("a")
				if second.Err() == nil {
					_ = second.Release(t.Context())
				}
				if third := <-waiter; third.Owner() == second.Owner() || third.Token() <= second.Token() {
					t.Errorf("what was lost was handed on: token %d after %d", third.Token(), second.Token())
				}
			})
		})
	}
}

// TestPluginDeathInAStreak checks that a lock is not handed over inside the host while the
// plugin is down, and that core renews the lease as soon as a new plugin is up.
func TestPluginDeathInAStreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(driver.CapWaiter, driver.CapWatcher)
		c, _ := open(t, f)
		l := lockOf(t, c, "a", nil)
		first := acquire(t, l)
		second := handOn(t, first, next(t, l))
		f.notices <- driver.Notice{Kind: driver.NoticeDown, Plugin: true}
		synctest.Wait()
		if second.State() != Suspect {
			t.Errorf("the lease is %v while the plugin is down", second.State())
		}
		before := f.count("renew")
		f.notices <- driver.Notice{Kind: driver.NoticeUp, Plugin: true}
		synctest.Wait()
		if second.State() != Held || f.count("renew") != before+1 || second.Owner() != first.Owner() {
			t.Errorf("with the new plugin the lease is %v, %d renewals", second.State(), f.count("renew")-before)
		}
		waiter := next(t, l)
		f.notices <- driver.Notice{Kind: driver.NoticeDown, Plugin: true}
		synctest.Wait()
		if third := handOn(t, second, waiter); third.Owner() == second.Owner() {
			t.Error("a lease in doubt was handed over")
		}
	})
}

// TestRenewalUnderWayAtAHandOver checks that the answer to a renewal counts
// for the lease that has the lock when the answer arrives.
func TestRenewalUnderWayAtAHandOver(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprint("lost ", lost), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(waiting...)
				c, _ := open(t, f)
				l := lockOf(t, c, "a", nil)
				first := acquire(t, l)
				waiter := next(t, l)
				f.hook(nil, func(_ context.Context, op string, _ driver.Request) error {
					if op == "renew" {
						time.Sleep(time.Second)
					}
					return nil
				})
				if lost {
					f.steal("a")
				}
				for f.count("renew") == 0 {
					time.Sleep(time.Millisecond)
				}
				sent := f.times("renew")[0]
				second := handOn(t, first, waiter)
				third := handOn(t, second, next(t, l))
				time.Sleep(1100 * time.Millisecond)
				if lost != !third.Valid() || lost && !errors.Is(third.Err(), ErrTaken) {
					t.Errorf("after the answer: %v", third.Err())
				}
				if n := f.count("renew"); !lost && (n != 1 || !third.Deadline().Equal(sent.Add(10*time.Second-102*time.Millisecond))) {
					t.Errorf("%d renewals, deadline %v after the sending", n, third.Deadline().Sub(sent))
				}
				synctest.Wait()
			})
		})
	}
}

// TestHealthAtAHandOver checks that an error from the previous holder's Healthy function does not
// end the next holder's lease.
func TestHealthAtAHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(waiting...)
		c, _ := open(t, f)
		sick := make(chan error)
		asked := make(chan struct{})
		first := acquire(t, lockOf(t, c, "a", &LockOptions{Healthy: func(context.Context) error {
			close(asked)
			return <-sick
		}}))
		waiter := next(t, lockOf(t, c, "a", nil))
		<-asked
		second := handOn(t, first, waiter)
		synctest.Wait()
		if n := f.count("renew"); n != 1 || second.Owner() != first.Owner() {
			t.Errorf("%d renewals while the first is asked for its health", n)
		}
		sick <- errors.New("ill")
		synctest.Wait()
		if n := f.count("renew"); n != 1 || !second.Valid() {
			t.Errorf("%d renewals, the second lease: %v", n, second.Err())
		}
	})
}

func TestCloseInAStreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(waiting...)
		c, rec := open(t, f)
		l := lockOf(t, c, "a", nil)
		var all sync.WaitGroup
		for range 32 {
			all.Go(func() {
				for {
					lease, err := l.Acquire(context.Background())
					if err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Error(err)
						}
						return
					}
					time.Sleep(10 * time.Microsecond)
					_ = lease.Release(context.Background())
				}
			})
		}
		time.Sleep(25 * time.Millisecond)
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
		all.Wait()
		if owner := f.owner("a"); owner != "" {
			t.Errorf("%q still holds it", owner)
		}
		ends := map[EventKind]int{}
		for _, k := range rec.kinds("a") {
			ends[k]++
		}
		if n := ends[EventAcquired]; n != ends[EventReleased]+ends[EventLost] || n < 100 {
			t.Errorf("events %v", ends)
		}
	})
}
