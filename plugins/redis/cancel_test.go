package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// Cancelled acquires whose owners are then withdrawn must leave no lock and no queue entry.
func TestCancelledAttemptsLeaveNothing(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	const workers, rounds, names = 32, 313, 16
	var work sync.WaitGroup
	for w := range workers {
		work.Go(func() {
			for i := range rounds {
				r := lease(fmt.Sprint("n", rand.N(names)), fmt.Sprint("o", w, "-", i))
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(400*time.Microsecond))
				token, err := b.TryAcquire(ctx, r)
				var by *driver.HeldError
				if errors.As(err, &by) {
					_, err = b.Wait(ctx, r, time.Second)
				}
				cancel()
				if token != 0 && err == nil {
					r.Token = token
				}
				end := func() error { return b.Release(t.Context(), r) }
				if r.Token == 0 {
					end = func() error { return b.Withdraw(t.Context(), r.Name, r.Owner) }
				}
				if err := end(); err != nil {
					t.Errorf("%s: clean up: %v", r.Owner, err)
				}
				if _, err := b.TryAcquire(t.Context(), r); r.Token == 0 && !errors.Is(err, driver.ErrWithdrawn) {
					t.Errorf("%s: acquire after the clean-up: %v", r.Owner, err)
				} else if r.Token != 0 && err == nil {
					must(t, b.Withdraw(t.Context(), r.Name, r.Owner))
				}
			}
		})
	}
	work.Wait()
	eventually(t, "two keys are left", func() bool { // a sign of life expires
		keys, err := c.Keys(t.Context(), "*").Result()
		must(t, err)
		slices.Sort(keys)
		return slices.Equal(keys, []string{"~b:{}", "~s:{}"})
	})
	if ttl := c.PTTL(t.Context(), "~b:{}").Val(); ttl <= time.Minute || ttl > 2*time.Minute {
		t.Errorf("withdrawn owners are kept for %v", ttl)
	}
	if n := c.ZCard(t.Context(), "~b:{}").Val(); n == 0 {
		t.Error("no owner has a tombstone")
	}
	for i := range names {
		acquire(t, b, lease(fmt.Sprint("n", i), "last"))
	}
}

// The server refuses an acquire that arrives after the withdrawal of its owner, even if the two
// requests came over different connections.
func TestLateAcquireIsRefused(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	must(t, b.Check(t.Context()))
	must(t, b.Release(t.Context(), acquire(t, b, lease("a", "first")))) // the server knows the script now
	must(t, s.Freeze())
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	r := lease("a", "late")
	if _, err := b.TryAcquire(ctx, r); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("acquire from a frozen server: %v", err)
	}
	must(t, s.Resume())
	must(t, b.Withdraw(t.Context(), r.Name, r.Owner))
	if v := c.Get(t.Context(), "a").Val(); strings.HasPrefix(v, "late ") {
		t.Errorf("a withdrawn owner holds the lock: %q", v)
	}
	acquire(t, b, lease("a", "next"))
}
