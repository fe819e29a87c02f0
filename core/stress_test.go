package core

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// TestStressOneHolderAtATime checks that a lock never has two holders. Goroutines of three hosts
// compete for three locks and give up at random times. The store is slow, loses messages, and is
// sometimes down.
func TestStressOneHolderAtATime(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { stress(t, seed) })
		})
	}
}

func stress(t *testing.T, seed uint64) {
	capabilities := [][]driver.Capability{nil, waiting}[seed%2]
	f := newFake(append(capabilities, driver.CapBatcher, driver.CapWatcher)...)
	var down atomic.Bool
	trouble := func(ctx context.Context, _ string, _ driver.Request) error {
		if down.Load() || rand.IntN(20) == 0 {
			return errDown
		}
		if rand.IntN(3) == 0 && !sleep(ctx, time.Duration(rand.IntN(8))*time.Millisecond) {
			return ctx.Err()
		}
		return nil
	}
	f.before, f.after = trouble, trouble
	var clients []*Client
	for range 3 {
		c, _ := open(t, f)
		clients = append(clients, c)
	}
	var holders [3]atomic.Pointer[Lease]
	var grants atomic.Int64
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			n := i % len(holders)
			l := lockOf(t, clients[i/len(holders)%len(clients)], fmt.Sprint(n), &LockOptions{TTL: 2 * time.Second})
			for range 15 {
				grants.Add(useOnce(t, l, &holders[n]))
			}
		})
	}
	all.Go(func() {
		for range 5 {
			time.Sleep(time.Second)
			down.Store(true)
			time.Sleep(time.Duration(rand.IntN(1500)) * time.Millisecond)
			down.Store(false)
		}
	})
	all.Wait()
	f.hook(nil, nil)
	time.Sleep(3 * time.Second)
	for n := range holders {
		if owner := f.owner(fmt.Sprint(n)); owner != "" {
			t.Errorf("lock %d is still held by %q", n, owner)
		}
	}
	for _, c := range clients {
		for i := range c.queues.shards {
			for name := range c.queues.shards[i].names {
				t.Errorf("a queue for %q is left", name)
			}
		}
	}
	if g := grants.Load(); g < 100 {
		t.Errorf("only %d grants", g)
	}
}

// useOnce tries for a random time to acquire the lock l. It returns the number of grants, 0 or 1.
func useOnce(t *testing.T, l *Lock, holder *atomic.Pointer[Lease]) int64 {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(4000))*time.Millisecond)
	defer cancel()
	lease, err := l.Acquire(ctx)
	if err != nil {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		return 0
	}
	if before := holder.Swap(lease); before != nil && before.Valid() {
		t.Errorf("%s: token %d was granted while %d was valid", l.Name(), lease.Token(), before.Token())
	} else if before != nil && before.Token() >= lease.Token() {
		t.Errorf("%s: token %d after %d", l.Name(), lease.Token(), before.Token())
	}
	select {
	case <-lease.Done():
	case <-time.After(time.Duration(rand.IntN(10)) * time.Millisecond):
	}
	if err := lease.Release(context.Background()); err != nil &&
		!errors.Is(err, ErrIndeterminate) && !errors.Is(err, ErrNotHeld) {
		t.Error(err)
	}
	return 1
}
