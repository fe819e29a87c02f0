package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// next is a goroutine that waits for l.
func next(t *testing.T, l *Lock) <-chan *Lease {
	out := make(chan *Lease, 1)
	go func() { out <- acquire(t, l) }()
	synctest.Wait()
	return out
}

// handOn releases lease, and returns the one that the waiter of next then has.
func handOn(t *testing.T, lease *Lease, waiter <-chan *Lease) *Lease {
	t.Helper()
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	return <-waiter
}

func TestK5HandOverAsksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(waiting...)
		c, rec := open(t, f)
		l := lockOf(t, c, "a", nil)
		first := acquire(t, l)
		wait := lineUp(t, l, 30, 100*time.Microsecond)
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if order := wait(); len(order) != 30 || !slices.IsSorted(order) {
			t.Errorf("granted in order %v", order)
		}
		if f.count("acquire") != 1 || f.count("release") != 1 || len(f.calls) != 2 {
			t.Errorf("the store was asked %v", f.calls)
		}
		rec.kinds("a")
		want := first.Token()
		for _, ev := range rec.events {
			if ev.Kind == EventAcquired {
				if ev.Token != want || ev.Owner != first.Owner() {
					t.Errorf("grant %d told as token %d of %s", want, ev.Token, ev.Owner)
				}
				want++
			}
		}
		if other := acquire(t, l); other.Token() < want || GrantNumber(other.Token()) == GrantNumber(first.Token()) {
			t.Errorf("the next grant of the store has token %d after %d", other.Token(), want-1)
		}
	})
}

func TestK5StreakEnds(t *testing.T) {
	for _, tc := range []struct {
		hold    time.Duration
		waiters int
		want    int
	}{{0, 1100, maxHandovers + 1}, {time.Millisecond, 40, 11}, {5 * time.Millisecond, 40, minStreak + 1}} {
		t.Run(fmt.Sprint("held ", tc.hold), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(waiting...)
				c, rec := open(t, f)
				l := lockOf(t, c, "a", nil)
				first := acquire(t, l)
				wait := lineUp(t, l, tc.waiters, tc.hold)
				if err := first.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				wait()
				rec.kinds("a")
				streaks := map[uint64]int{}
				last := uint64(0)
				for _, ev := range rec.events {
					if ev.Kind != EventAcquired {
						continue
					}
					if ev.Token <= last {
						t.Errorf("token %d after %d", ev.Token, last)
					}
					last = ev.Token
					streaks[GrantNumber(ev.Token)]++
				}
				if streaks[GrantNumber(first.Token())] != tc.want || f.count("acquire") != len(streaks) {
					t.Errorf("streaks of %v, want %d; %d acquires", streaks, tc.want, f.count("acquire"))
				}
			})
		})
	}
}

func TestHandedOverLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(waiting...)
		c, _ := open(t, f)
		other, _ := open(t, f)
		l := lockOf(t, c, "a", nil)
		first := acquire(t, l)
		ctx, cancel := first.Context(t.Context())
		defer cancel()
		waiter := next(t, l)
		time.Sleep(maxAsk + maxAsk/2) // the head asks the store at each maxAsk
		answer := make(chan struct{})
		f.hook(func(_ context.Context, op string, _ driver.Request) error {
			if op == "renew" {
				<-answer
			}
			return nil
		}, nil)
		deadline := first.Deadline()
		second := handOn(t, first, waiter)
		if first.Valid() || !isDone(first.done) || ctx.Err() == nil || !errors.Is(first.Err(), ErrReleased) || first.State() != Released {
			t.Errorf("the lease before is %v, %v", first.State(), first.Err())
		}
		if second.Owner() != first.Owner() || second.Token() != first.Token()+1 || !second.Deadline().Equal(deadline) {
			t.Errorf("owner %s, token %d, deadline %v after %s, %d, %v",
				second.Owner(), second.Token(), second.Deadline(), first.Owner(), first.Token(), deadline)
		}
		if err := first.Release(t.Context()); err != nil || f.count("release") != 0 || !second.Valid() {
			t.Errorf("releasing the lease before again: %v, %d releases", err, f.count("release"))
		}
		synctest.Wait()
		if n := f.count("renew"); n != 1 {
			t.Errorf("%d renewals just after the hand-over", n)
		}
		close(answer)
		synctest.Wait()
		if left := time.Until(second.Deadline()); left != 10*time.Second-102*time.Millisecond {
			t.Errorf("renewed, the deadline is in %v", left)
		}
		for who, want := range map[*Client]uint64{c: second.Token(), other: first.Token()} {
			if h, err := who.Inspect(t.Context(), "a"); err != nil || h.Token != want {
				t.Errorf("Inspect shows %d, %v, want %d", h.Token, err, want)
			}
		}
		if _, err := lockOf(t, c, "a", nil).TryAcquire(t.Context()); err == nil || heldBy(err).Token != second.Token() {
			t.Errorf("TryAcquire is refused by token %d: %v", heldBy(err).Token, err)
		}
		time.Sleep(time.Minute)
		if !second.Valid() {
			t.Errorf("the lease is not renewed: %v", second.Err())
		}
		if err := second.Release(t.Context()); err != nil || f.owner("a") != "" {
			t.Errorf("%v, held by %q", err, f.owner("a"))
		}
	})
}

func heldBy(err error) Holder {
	var held *HeldError
	if errors.As(err, &held) {
		return held.Holder
	}
	return Holder{}
}

// TestHandOverThroughTheStore: what the store or the plugin must know goes
// through it, and so does what is in doubt.
func TestHandOverThroughTheStore(t *testing.T) {
	stuck := func(_ context.Context, op string, _ driver.Request) error {
		if op == "renew" {
			time.Sleep(time.Hour)
		}
		return nil
	}
	failing := func(_ context.Context, op string, _ driver.Request) error {
		if op == "renew" {
			return errDown
		}
		return nil
	}
	plain := LockOptions{TTL: 10 * time.Second}
	with := func(change func(*LockOptions)) LockOptions {
		o := plain
		change(&o)
		return o
	}
	for name, tc := range map[string]struct {
		first, second LockOptions
		before        func(context.Context, string, driver.Request) error
		held          time.Duration
	}{
		"less than half of the TTL": {first: plain, second: plain, before: stuck, held: 5 * time.Second},
		"a renewal failed":          {first: plain, second: plain, before: failing, held: 4 * time.Second},
		"another TTL":               {first: plain, second: with(func(o *LockOptions) { o.TTL = 11 * time.Second })},
		"a value before":            {first: with(func(o *LockOptions) { o.Value = []byte{} }), second: plain},
		"a value after":             {first: plain, second: with(func(o *LockOptions) { o.Value = []byte("v") })},
		"no renewals before":        {first: with(func(o *LockOptions) { o.NoRenew = true }), second: plain},
		"no renewals after":         {first: plain, second: with(func(o *LockOptions) { o.NoRenew = true })},
		"AtLeast before":            {first: with(func(o *LockOptions) { o.AtLeast = time.Second }), second: plain},
		"AtLeast after":             {first: plain, second: with(func(o *LockOptions) { o.AtLeast = time.Second })},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(waiting...)
				f.before = tc.before
				c, _ := open(t, f)
				first := acquire(t, lockOf(t, c, "a", &tc.first))
				waiter := next(t, lockOf(t, c, "a", &tc.second))
				time.Sleep(tc.held)
				second := handOn(t, first, waiter)
				if GrantNumber(second.Token()) <= GrantNumber(first.Token()) || second.Owner() == first.Owner() {
					t.Errorf("token %d of %s after %d of %s", second.Token(), second.Owner(), first.Token(), first.Owner())
				}
				if owner := f.owner("a"); owner != second.Owner() {
					t.Errorf("the store has it held by %q", owner)
				}
				f.hook(nil, nil)
			})
		})
	}
}

func TestElectionsGoThroughTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(waiting...)
		c, _ := open(t, f)
		e := electorOf(t, c, "a", nil)
		first, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		terms := make(chan *Term, 1)
		go func() {
			term, err := e.Campaign(t.Context())
			if err != nil {
				t.Error(err)
			}
			terms <- term
		}()
		synctest.Wait()
		if err := first.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if second := <-terms; GrantNumber(second.Token()) == GrantNumber(first.Token()) {
			t.Errorf("a term was handed over: token %d after %d, which no observer saw", second.Token(), first.Token())
		}
	})
}

// TestSuspendInAStreak: a lease that ran out while the machine slept is handed
// to nobody, although no timer has seen it.
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
		f.forget("a") // it expired in the store
		if err := second.Release(t.Context()); !errors.Is(err, ErrNotHeld) {
			t.Errorf("releasing what has expired: %v", err)
		}
		if third := <-waiter; third.Owner() == second.Owner() || !third.Valid() {
			t.Errorf("after the suspend the lock was handed on, valid %t", third.Valid())
		}
	})
}

// TestLossInAStreak: what ends the host's grant ends the lease that has it by
// then, whichever way this host hears of it.
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
				f := newFake(driver.PowerWaiter, driver.PowerWatcher, driver.PowerAdmin)
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

// TestPluginDeathInAStreak: while the plugin is down nothing is handed over on
// trust, and the new one learns of the lease that has the lock by then.
func TestPluginDeathInAStreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(driver.PowerWaiter, driver.PowerWatcher)
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

// TestRenewalUnderWayAtAHandOver: its answer is for whoever has the lock when
// it comes.
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

// TestHealthAtAHandOver: what the holder before says of its health is nothing
// to the next one.
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

// TestWaiterThatGivesUpPassesOn: the lock is handed to one whose ctx ends at
// that moment.
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

// TestGivenUpHandOverOfADownStore: the lock is handed to a waiter whose ctx ends
// just then, and the store takes no release: the grant is still there, and the
// error has to say so.
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

func TestGrantNumberTooLarge(t *testing.T) {
	for name, ask := range map[string]func(*Lock) (*Lease, error){
		"Acquire":    func(l *Lock) (*Lease, error) { return l.Acquire(context.Background()) },
		"TryAcquire": func(l *Lock) (*Lease, error) { return l.TryAcquire(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(waiting...)
				f.last = maxGrant - 2
				c, _ := open(t, f)
				l := lockOf(t, c, "a", nil)
				largest, err := ask(l)
				if err != nil || largest.Token()>>63 != 0 || GrantNumber(largest.Token()) != maxGrant-1 {
					t.Fatalf("%v, %v", largest, err)
				}
				if err := largest.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				if _, err := ask(l); err == nil || !strings.Contains(err.Error(), "fake granted 9007199254740992") {
					t.Errorf("a grant at 2^53: %v", err)
				}
				if owner := f.owner("a"); owner != "" || f.count("withdraw") != 1 {
					t.Errorf("%q still holds it, %d withdrawals", owner, f.count("withdraw"))
				}
			})
		})
	}
}
