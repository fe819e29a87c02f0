package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
	"github.com/lockbench/lockbench/plugins/mysql"
)

// TestContenders lets 16 hosts with 4 goroutines each contend for one lock, for
// as many seconds as LOCKBENCH_MYSQL_CONTEND says.
// Any error fails it: a deadlock and a lock wait that reach a caller, too.
func TestContenders(t *testing.T) {
	w := newFixture(t)
	const hosts, each = 16, 4
	var inside atomic.Int32
	var last uint64 // guarded by the lock under test
	grants := make([]int, hosts)
	var mu sync.Mutex // guards grants
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(number("LOCKBENCH_MYSQL_CONTEND", 4))*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for h := range hosts {
		c := core.New(w.host(t), &core.Options{Label: fmt.Sprint("host-", h), Logger: slog.New(slog.DiscardHandler)})
		t.Cleanup(func() { _ = c.Close(context.Background()) })
		l, err := c.Lock("jobs", &core.LockOptions{TTL: 10 * time.Second})
		must(t, err)
		for range each {
			all.Go(func() {
				for ctx.Err() == nil {
					lease, err := l.Acquire(ctx)
					if err != nil {
						if ctx.Err() == nil || errors.Is(err, core.ErrIndeterminate) {
							t.Errorf("host %d: %v", h, err)
						}
						return
					}
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d hold the lock", n)
					}
					if lease.Token() <= last {
						t.Errorf("token %d after %d", lease.Token(), last)
					}
					last = lease.Token()
					mu.Lock()
					grants[h]++
					mu.Unlock()
					inside.Add(-1)
					err = lease.Release(context.Background())
					for try := 0; errors.Is(err, core.ErrIndeterminate) && try < 3; try++ {
						err = lease.Release(context.Background()) // a busy machine takes its time
					}
					if err != nil {
						t.Errorf("host %d: release: %v", h, err)
					}
				}
			})
		}
	}
	all.Wait()
	total := 0
	for _, n := range grants {
		total += n
	}
	// A host's turn is up to nine grants, so that a few turns say nothing.
	if j := jain(grants); j < 0.95 && total > 5*9*hosts {
		t.Errorf("fairness over hosts %.3f: %v", j, grants)
	} else {
		t.Logf("fairness over hosts %.3f: %v", j, grants)
	}
	if left := leftovers(t, w.address, w.prefix); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// jain is 1 when all have the same, and 1/n when one has everything.
func jain(counts []int) float64 {
	var sum, squares float64
	for _, c := range counts {
		sum += float64(c)
		squares += float64(c) * float64(c)
	}
	return sum * sum / (float64(len(counts)) * squares)
}

// TestFirstInsert races for names that no row exists for.
func TestFirstInsert(t *testing.T) {
	w := newFixture(t)
	races := 1000
	if testing.Short() {
		races = 100
	}
	const contenders = 8
	var backends [contenders]driver.Backend
	for i := range backends {
		backends[i] = w.host(t)
		must(t, backends[i].Check(t.Context()))
	}
	for race := range races {
		var all sync.WaitGroup
		var winners atomic.Int32
		gate := make(chan struct{})
		for _, b := range backends {
			all.Go(func() {
				<-gate
				_, err := b.TryAcquire(t.Context(), want(fmt.Sprintf("first/%d", race), 10*time.Second))
				switch {
				case err == nil:
					winners.Add(1)
				case !errors.Is(err, driver.ErrHeld):
					t.Errorf("race %d: %v", race, err)
				}
			})
		}
		close(gate)
		all.Wait()
		if n := winners.Load(); n != 1 {
			t.Fatalf("race %d has %d winners", race, n)
		}
	}
}

// TestOppositeOrders sends batches of the same names in opposite orders, which
// deadlock each other unless they are sorted.
func TestOppositeOrders(t *testing.T) {
	w := newFixture(t)
	var all sync.WaitGroup
	for h := range 2 {
		b := w.host(t)
		all.Go(func() {
			for range 50 {
				var ops []driver.Op
				for i := range 40 {
					n := i
					if h == 1 {
						n = 39 - i
					}
					ops = append(ops, driver.Op{Kind: driver.OpAcquire, Request: want(fmt.Sprintf("job/%d", n), 10*time.Second)})
				}
				var releases []driver.Op
				for i, r := range b.Batch(t.Context(), ops) {
					switch {
					case r.Err == nil:
						ops[i].Token = r.Token
						releases = append(releases, driver.Op{Kind: driver.OpRelease, Request: ops[i].Request})
					case !errors.Is(r.Err, driver.ErrHeld):
						t.Error(r.Err)
					}
				}
				for _, r := range b.Batch(t.Context(), releases) {
					if r.Err != nil {
						t.Error(r.Err)
					}
				}
			}
		})
	}
	all.Wait()
}

// TestLockedRowHoldsUpNobodyElse has one row of a batch locked by a foreign
// transaction, which ends only when the others are granted. The server does not
// give the statement up for a minute, so that nothing but the backend can have
// seen to it.
func TestLockedRowHoldsUpNobodyElse(t *testing.T) {
	w := newFixture(t)
	o := mysql.Options{
		Address: w.address, Prefix: w.prefix, Connect: mysql.Connect{DialTimeout: time.Minute, RequestTimeout: time.Minute},
		Logger: slog.New(slog.DiscardHandler),
	}
	b, err := mysql.OpenWith(o, "SET SESSION innodb_lock_wait_timeout=60;")
	must(t, err)
	backendtest.CloseAfter(t, b)
	const locked = 3
	name := func(i int) string { return fmt.Sprintf("job/%d", i) }
	release(t, b, acquire(t, b, want(name(locked), 10*time.Second)))
	unlock := w.lockRow(t, name(locked))
	results := make(chan []driver.Result, 1)
	go func() {
		var ops []driver.Op
		for i := range 8 {
			ops = append(ops, driver.Op{Kind: driver.OpAcquire, Request: want(name(i), time.Minute)})
		}
		results <- b.Batch(t.Context(), ops)
	}()
	for i := range 8 {
		if i != locked {
			eventually(t, name(i)+" is granted", func() bool {
				h, err := w.b.Inspect(t.Context(), name(i))
				return err == nil && h.Held()
			})
		}
	}
	unlock()
	for i, r := range <-results {
		if r.Err != nil {
			t.Errorf("operation %d: %v", i, r.Err)
		}
	}
}
