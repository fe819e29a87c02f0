package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

func next(t *testing.T, l *Lock) <-chan *Lease {
	out := make(chan *Lease, 1)
	go func() { out <- acquire(t, l) }()
	synctest.Wait()
	return out
}

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
		time.Sleep(maxAsk + maxAsk/2) // the head of the queue asks the store every maxAsk
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

// TestHandOverThroughTheStore covers locks that are released in the store, not handed over. After a
// hand-over, store or plugin would not know the new holder, or the lease might be lost soon.
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
		"less than half of the TTL": {first: plain, second: plain, before: stuck, held: maxAsk*5 + maxAsk/2},
		"a renewal failed":          {first: plain, second: plain, before: failing, held: maxAsk*4 + maxAsk/2},
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
