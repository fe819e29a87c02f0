package core

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// The type nothing is a backend that grants every request at once and keeps no locks.
type nothing struct{ fake }

func (*nothing) TryAcquire(context.Context, driver.Request) (uint64, error) { return 1, nil }
func (*nothing) Renew(context.Context, driver.Request) error                { return nil }
func (*nothing) Release(context.Context, driver.Request) error              { return nil }
func (*nothing) Batch(_ context.Context, ops []driver.Op) []driver.Result {
	return make([]driver.Result, len(ops))
}

func openNothing(b *testing.B) *Client {
	c := New(&nothing{fake: fake{props: newFake(driver.CapBatcher).props}}, &Options{
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	b.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return c
}

func cycle(b *testing.B, ctx context.Context, l *Lock) {
	lease, err := l.Acquire(ctx)
	if err == nil {
		err = lease.Release(ctx)
	}
	if err != nil {
		b.Error(err)
	}
}

func BenchmarkCycle(b *testing.B) {
	for name, ctx := range map[string]context.Context{"background": context.Background(), "cancellable": b.Context()} {
		b.Run("ctx="+name, func(b *testing.B) {
			c := openNothing(b)
			l := lockOf(b, c, "a", nil)
			b.ReportAllocs()
			for b.Loop() {
				cycle(b, ctx, l)
			}
		})
		b.Run("parallel/ctx="+name, func(b *testing.B) {
			c := openNothing(b)
			b.ReportAllocs()
			b.SetParallelism(64)
			b.RunParallel(func(pb *testing.PB) {
				l := lockOf(b, c, fmt.Sprint(time.Now().UnixNano()), nil)
				for pb.Next() {
					cycle(b, ctx, l)
				}
			})
		})
	}
}

// BenchmarkHeld reports the memory for each held lease, and the time to renew all leases.
func BenchmarkHeld(b *testing.B) {
	const n = 10_000
	c := openNothing(b)
	names := make([]*Lock, n)
	for i := range names {
		names[i] = lockOf(b, c, fmt.Sprint("lock-", i), nil)
	}
	before := heapInUse()
	for _, l := range names {
		acquire(b, l)
	}
	perLease := float64(heapInUse()-before) / n
	for b.Loop() {
		c.sched.mu.Lock()
		now := c.clock.now()
		for l := range c.sched.leases.all() {
			l.due = now
		}
		batches := c.sched.group(slices.Collect(c.sched.leases.all()), now)
		c.sched.mu.Unlock()
		for _, f := range batches {
			c.sched.renew(b.Context(), f)
		}
	}
	b.ReportMetric(perLease, "B/lease")
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
