package redis

import (
	"context"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core"
)

// TestDemotedMasterEndsNoStandby makes the only server a replica, which is read-only,
// for 1.5 s. A waiting Acquire must not fail, and a lease must not be lost.
func TestDemotedMasterEndsNoStandby(t *testing.T) {
	s := start(t, nil)
	admin := plain(t, s)
	leader, standby := core.New(connect(t, at(s)), nil), core.New(connect(t, at(s)), nil)
	defer leader.Close(context.WithoutCancel(t.Context()))
	defer standby.Close(context.WithoutCancel(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	held, err := leader.Lock("jobs", nil)
	must(t, err)
	lease, err := held.Acquire(ctx)
	must(t, err)
	wanted, err := standby.Lock("jobs", nil)
	must(t, err)
	must(t, standby.Check(ctx))
	got := make(chan error, 1)
	go func() {
		next, err := wanted.Acquire(ctx)
		if err == nil {
			err = next.Release(ctx)
		}
		got <- err
	}()
	eventually(t, "the standby waits", func() bool {
		h, err := leader.Inspect(ctx, "jobs")
		return err == nil && h.Waiters > 0
	})
	must(t, admin.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err())
	select {
	case err := <-got:
		t.Fatalf("the standby has ended while the server is read-only: %v", err)
	case <-time.After(1500 * time.Millisecond):
	}
	must(t, admin.Do(ctx, "REPLICAOF", "NO", "ONE").Err())
	if !lease.Valid() {
		t.Errorf("the lease was lost: %v", lease.Err())
	}
	must(t, lease.Release(ctx))
	must(t, <-got)
}
