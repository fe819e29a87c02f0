package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

// TestContenders lets 16 hosts with 4 goroutines each contend for one lock, for as many seconds as
// LOCKBENCH_MYSQL_CONTEND says. In this time, any error of an acquire, such as a deadlock or a lock
// wait timeout, fails the test.
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
						err = lease.Release(context.Background()) // a busy machine may need longer
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
	// A host may get nine grants in a row, so the test judges fairness only after many grants.
	if j := jain(grants); j < 0.95 && total > 5*9*hosts {
		t.Errorf("fairness over hosts %.3f: %v", j, grants)
	} else {
		t.Logf("fairness over hosts %.3f: %v", j, grants)
	}
	if left := leftovers(t, w.address, w.prefix); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// jain returns Jain's index of fairness: 1 if all n counts are equal, 1/n if all but one are 0.
func jain(counts []int) float64 {
	var sum, squares float64
	for _, c := range counts {
		sum += float64(c)
		squares += float64(c) * float64(c)
	}
	return sum * sum / (float64(len(counts)) * squares)
}

// TestFirstInsert lets hosts compete for names that have no row yet. One host must win each name.
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

// TestOppositeOrders sends batches of the same names in opposite orders. The
// batches would deadlock if the backend did not sort the names.
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

// TestLockedRowHoldsUpNobodyElse lets another client lock one row of a batch until
// the other locks of the batch are granted. The server lets a statement wait for a
// row for a minute, so only the backend can end the batch's statement in time.
func TestLockedRowHoldsUpNobodyElse(t *testing.T) {
	w := newFixture(t)
	b := w.patient(t)
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

// TestLockedRowsHoldUpNoOtherRequest lets another client's transaction lock 40 rows,
// and sends requests for them: waits, proclaims, breaks, and releases with Keep.
// Requests for another lock must be answered before that transaction ends.
func TestLockedRowsHoldUpNoOtherRequest(t *testing.T) {
	w := newFixture(t)
	b := w.patient(t)
	const locked = 40
	mine := make([]driver.Request, locked)
	for i := range mine {
		mine[i] = acquire(t, b, want(fmt.Sprint("locked/", i), time.Minute))
	}
	tx, err := w.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	must(t, err)
	if _, err := tx.Exec("SELECT COUNT(*) FROM " + table(w.prefix) + " WHERE name LIKE 'locked/%' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for _, r := range mine {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, _ = b.Wait(ctx, want(r.Name, time.Minute), time.Second)
		})
		all.Go(func() {
			r.Value = []byte("new")
			if err := b.Proclaim(t.Context(), r); err != nil {
				t.Errorf("proclaiming at the end: %v", err)
			}
		})
	}
	for i, r := range mine {
		all.Go(func() {
			r.Keep = time.Minute
			err := b.Break(t.Context(), r.Name, r.Token+1)
			if i%2 == 0 {
				err = b.Release(t.Context(), r)
			}
			if err != nil && !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("shortening at the end: %v", err)
			}
		})
	}
	eventually(t, "a request waits for its row", func() bool { return blocked(t, w.db, "UPDATE "+table(w.prefix)) > 0 })
	for round := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		r := acquire(t, b, want("apart", time.Minute))
		must(t, b.Check(ctx))
		if h, err := b.Inspect(ctx, r.Name); err != nil || h.Owner != r.Owner {
			t.Fatalf("round %d: inspected %+v, %v", round, h, err)
		}
		must(t, b.Proclaim(ctx, r))
		r.Keep = time.Nanosecond
		must(t, b.Release(ctx, r))
		cancel()
		pause(t, 25*time.Millisecond)
	}
	must(t, tx.Rollback())
	all.Wait()
}

// TestLockedGapHoldsUpNewRowsOnly lets another client's transaction ask for a missing
// row, which locks the gap between the rows around it. 24 callers want new rows in the
// gap. Meanwhile the backend must serve existing rows, and new rows outside the gap.
func TestLockedGapHoldsUpNewRowsOnly(t *testing.T) {
	w := newFixture(t)
	for _, name := range []string{"a", "c"} {
		for i := range 8 {
			release(t, w.b, acquire(t, w.b, want(fmt.Sprint(name, "/", i), time.Minute)))
		}
	}
	tx, err := w.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	must(t, err)
	defer func() { _ = tx.Rollback() }() // fails if tx has ended
	if _, err := tx.Exec("SELECT COUNT(*) FROM " + table(w.prefix) + " WHERE name='b' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	b := w.host(t)
	c := core.New(b, &core.Options{Logger: slog.New(slog.DiscardHandler)})
	defer c.Close(context.Background())
	storm, stop := context.WithCancel(t.Context())
	defer stop()
	var kept, served sync.WaitGroup
	for i := range 24 {
		l, err := c.Lock(fmt.Sprint("b/", i), &core.LockOptions{TTL: time.Minute})
		must(t, err)
		kept.Go(func() {
			for storm.Err() == nil {
				ctx, cancel := context.WithTimeout(storm, []time.Duration{300 * time.Millisecond, time.Minute}[i%2])
				if _, err := l.Acquire(ctx); err == nil {
					t.Errorf("%q was granted in the gap", l.Name())
				}
				cancel()
			}
		})
	}
	eventually(t, "a new row waits", func() bool { return blocked(t, w.db, "INSERT INTO "+table(w.prefix)) > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for i := range 8 {
		served.Go(func() {
			for round := range 25 {
				names := []string{fmt.Sprint("a/", i), fmt.Sprint("c/", i)}
				if round%8 == 0 {
					names = append(names, fmt.Sprintf("d/%d/%d", i, round))
				}
				for _, name := range names {
					r := want(name, time.Minute)
					var err error
					if r.Token, err = b.TryAcquire(ctx, r); err == nil {
						err = b.Release(ctx, r)
					}
					if err != nil {
						t.Errorf("%q: %v", name, err)
						return
					}
				}
			}
		})
	}
	served.Wait()
	stop()
	kept.Wait()
	must(t, tx.Rollback())
	for i := range 24 {
		release(t, b, acquire(t, b, want(fmt.Sprint("b/", i), time.Minute)))
	}
}
