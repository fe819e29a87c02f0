package etcd

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

func started(t *testing.T, ctx context.Context, b *Backend, ops []driver.Op) []driver.Result {
	t.Helper()
	type outcome struct {
		i int
		driver.Result
	}
	results, got := make([]driver.Result, len(ops)), make(chan outcome, len(ops)+1)
	for i, op := range ops {
		b.Start(ctx, op, func(r driver.Result) { got <- outcome{i, r} })
	}
	seen := map[int]bool{}
	for range ops {
		select {
		case o := <-got:
			if seen[o.i] {
				t.Errorf("operation %d is done twice", o.i)
			}
			results[o.i], seen[o.i] = o.Result, true
		case <-time.After(15 * time.Second):
			t.Fatalf("%d of %d operations are done after 15 s", len(seen), len(ops))
		}
	}
	return results
}

func acquires(from, to int) []driver.Op {
	var ops []driver.Op
	for i := from; i < to; i++ {
		ops = append(ops, driver.Op{Kind: driver.OpAcquire, Request: lock(fmt.Sprintf("n%d", i), fmt.Sprintf("o%d", i))})
	}
	return ops
}

// TestStart checks that Start can acquire and release more locks than fit into one Txn.
func TestStart(t *testing.T) {
	s := start(t, nil)
	b := connect(t, on(s))
	ops := acquires(0, 300)
	for i, r := range started(t, t.Context(), b, ops) {
		must(t, r.Err)
		ops[i].Kind, ops[i].Token = driver.OpRelease, r.Token
	}
	for _, r := range started(t, t.Context(), b, ops) {
		must(t, r.Err)
	}
	if left := leftovers(t, plain(t, s), DefaultPrefix); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	for _, r := range started(t, t.Context(), b, ops) {
		isNotHeld(t, r.Err)
	}
}

// TestStartGivenUp checks that an operation whose ctx has already ended is never sent,
// and that a closed backend refuses operations.
func TestStartGivenUp(t *testing.T) {
	s := start(t, nil)
	b := connect(t, on(s))
	acquire(t, b, lock("warm", "o"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, r := range started(t, ctx, b, acquires(0, 3)) {
		if !errors.Is(r.Err, driver.ErrNotSent) {
			t.Errorf("given up before: %v", r.Err)
		}
	}
	must(t, b.Close(t.Context()))
	for _, r := range started(t, t.Context(), b, acquires(3, 6)) {
		if !errors.Is(r.Err, driver.ErrClosed) {
			t.Errorf("after Close: %v", r.Err)
		}
	}
	if left := leftovers(t, plain(t, s), DefaultPrefix); len(left) != 1 {
		t.Errorf("in the store: %v, want only the first lock", left)
	}
}
