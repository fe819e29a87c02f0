package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

// TestPurge checks that a purge, which reads several pages, deletes the rows of locks that have
// been free for a day, and no other rows.
func TestPurge(t *testing.T) {
	prefix := fresh()
	b, c := host(t, prefix), connect(t, server(t))
	held := acquire(t, b, backendtest.Request("held", rand.Text()))
	must(t, b.Release(t.Context(), acquire(t, b, backendtest.Request("free", rand.Text()))))
	_, err := c.Exec(t.Context(), `INSERT INTO lockbench.locks (name, ends)
		SELECT convert_to($1 || '/old' || i, 'UTF8'), clock_timestamp() - interval '2 days' FROM generate_series(1, 2500) i`, prefix)
	must(t, err)
	rows := 0
	for last := []byte{}; last != nil; {
		must(t, c.QueryRow(t.Context(), "SELECT lockbench.purge1($1)", last).Scan(&last))
	}
	must(t, c.QueryRow(t.Context(), "SELECT count(*) FROM lockbench.locks WHERE starts_with(encode(name, 'escape'), $1)", prefix+"/").Scan(&rows))
	if rows != 2 {
		t.Errorf("%d rows are left, want those of 2 locks", rows)
	}
	must(t, b.Release(t.Context(), held))
}

// TestDeadWaiterOfTwoLocks releases two locks at the same time. The only waiter for both is a dead
// process, and neither release may grant its lock to that process.
func TestDeadWaiterOfTwoLocks(t *testing.T) {
	prefix := fresh()
	b := host(t, prefix)
	var owners [2]driver.Request
	for i := range owners {
		owners[i] = acquire(t, b, backendtest.Request(fmt.Sprint("lock", i), rand.Text()))
	}
	c := connect(t, server(t))
	_, err := c.Exec(t.Context(), "SELECT lockbench.sign1($1, 1, 60000000)", prefix)
	must(t, err)
	for _, r := range owners {
		_, err := c.Exec(t.Context(), "SELECT lockbench.enter1('1s', $1, ARRAY[$2::bytea], ARRAY['dead'], ARRAY[2000000::bigint], ARRAY[NULL::bytea], ARRAY[NULL::bytea], ARRAY[60000000::bigint])",
			prefix, []byte(prefix+"/"+r.Name))
		must(t, err)
	}
	tx, err := c.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), "SELECT lockbench.release1('1s', ARRAY[$1::bytea], ARRAY[$2::text], ARRAY[$3::bigint])",
		[]byte(prefix+"/"+owners[0].Name), owners[0].Owner, int64(owners[0].Token))
	must(t, err)
	must(t, b.Release(t.Context(), owners[1]))
	must(t, tx.Commit(t.Context()))
	for _, r := range owners {
		if h, err := b.Inspect(t.Context(), r.Name); err != nil || h.Held() {
			t.Errorf("%s was granted to a dead waiter: %+v, %v", r.Name, h, err)
		}
	}
}

// TestSignComesBeforeTheEntry keeps signs of life from being committed. No waiter may enter a queue
// in that time, because a release would skip it as dead.
func TestSignComesBeforeTheEntry(t *testing.T) {
	prefix := fresh()
	b := host(t, prefix)
	must(t, b.Check(t.Context())) // now it listens
	acquire(t, b, backendtest.Request("one", rand.Text()))
	tx, err := connect(t, server(t)).Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE lockbench.processes IN SHARE MODE")
	must(t, err)
	var all sync.WaitGroup
	for range many {
		all.Go(func() { _, _ = b.Wait(t.Context(), backendtest.Request("one", rand.Text()), 200*time.Millisecond) })
	}
	time.Sleep(100 * time.Millisecond)
	var entered int
	must(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM lockbench.waiters WHERE name = $1", []byte(prefix+"/one")).Scan(&entered))
	if entered > 0 {
		t.Errorf("%d waiters have entered before their process has given a sign", entered)
	}
	must(t, tx.Rollback(t.Context()))
	all.Wait()
}

// TestRenewalBehindALockedRow makes a renewal wait for another session's row lock until the lease
// has ended. The renewal must not revive the lease.
func TestRenewalBehindALockedRow(t *testing.T) {
	prefix := fresh()
	b := host(t, prefix)
	r := backendtest.Request("one", rand.Text())
	r.TTL = 500 * time.Millisecond
	r = acquire(t, b, r)
	over := time.Now().Add(r.TTL)
	tx, err := connect(t, server(t)).Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM lockbench.locks WHERE name = $1 FOR UPDATE", []byte(prefix+"/one"))
	must(t, err)
	renewed := make(chan error, 1)
	go func() { renewed <- b.Renew(t.Context(), r) }()
	time.Sleep(time.Until(over.Add(50 * time.Millisecond)))
	must(t, tx.Rollback(t.Context()))
	err = <-renewed
	if errors.Is(err, driver.ErrUnavailable) { // the renewal gave up before the rollback
		err = b.Renew(t.Context(), r)
	}
	if !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("renewed after its end: %v", err)
	}
}

// TestManyLockedRows renews 40 locks in one batch, while all their rows but one are locked. The
// lock of the free row must be renewed, and the batch must end soon after ctx ends.
func TestManyLockedRows(t *testing.T) {
	prefix := fresh()
	b := host(t, prefix)
	ops := make([]driver.Op, 40)
	for i := range ops {
		ops[i] = driver.Op{Kind: driver.OpRenew, Request: acquire(t, b, backendtest.Request(fmt.Sprint("lock", i), rand.Text()))}
	}
	tx, err := connect(t, server(t)).Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM lockbench.locks WHERE starts_with(encode(name, 'escape'), $1) AND name <> $2 FOR UPDATE",
		prefix+"/", []byte(prefix+"/lock7"))
	must(t, err)
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
	defer cancel()
	for i, r := range b.Batch(ctx, ops) {
		if (i == 7) != (r.Err == nil) {
			t.Errorf("%s: %v", ops[i].Name, r.Err)
		}
	}
	if took := time.Since(began); took > 5*time.Second { // 39 waits of 1 s, 4 at a time, take 10 s
		t.Errorf("the batch took %v", took)
	}
	must(t, tx.Rollback(t.Context()))
}
