package etcd

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/lockbench/lockbench/core/driver"
)

// cycle acquires and releases the lock of one worker.
type cycle func(ctx context.Context, worker, round int) error

// run does b.N cycles with so many workers, and reports the median of one.
func run(b *testing.B, workers, locks int, c cycle) {
	took := make([][]time.Duration, workers)
	var (
		group sync.WaitGroup
		next  atomic.Int64
	)
	b.ResetTimer()
	for w := range workers {
		group.Go(func() {
			for round := next.Add(1); round <= int64(b.N); round = next.Add(1) {
				began := time.Now()
				if err := c(b.Context(), w, int(round)); err != nil {
					b.Error(err)
					return
				}
				took[w] = append(took[w], time.Since(began))
			}
		})
	}
	group.Wait()
	b.StopTimer()
	all := slices.Concat(took...)
	if len(all) == 0 {
		b.Fatal("nothing was done")
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2]), "p50-ns/cycle")
	b.ReportMetric(float64(locks*len(all))/b.Elapsed().Seconds(), "locks/s")
}

// singly is one operation of the backend at a time for each worker.
func singly(b *Backend) cycle {
	return func(ctx context.Context, worker, round int) error {
		r := lock(fmt.Sprintf("bench/%d", worker), fmt.Sprintf("%d-%d", worker, round))
		var err error
		if r.Token, err = b.TryAcquire(ctx, r); err != nil {
			return err
		}
		return b.Release(ctx, r)
	}
}

// batched is 32 locks for each worker in one call, as a plugin gets them.
func batched(b *Backend) cycle {
	return func(ctx context.Context, worker, round int) error {
		ops := make([]driver.Op, 32)
		for i := range ops {
			ops[i] = driver.Op{Kind: driver.OpAcquire, Request: lock(fmt.Sprintf("bench/%d/%d", worker, i), fmt.Sprintf("%d-%d", worker, round))}
		}
		for i, res := range b.Batch(ctx, ops) {
			if res.Err != nil {
				return res.Err
			}
			ops[i].Kind, ops[i].Token = driver.OpRelease, res.Token
		}
		for _, res := range b.Batch(ctx, ops) {
			if res.Err != nil {
				return res.Err
			}
		}
		return nil
	}
}

// mutex is what an application of etcd would write: one session for all.
func mutex(s *concurrency.Session) cycle {
	return func(ctx context.Context, worker, _ int) error {
		m := concurrency.NewMutex(s, fmt.Sprintf("/mutex/%d", worker))
		if err := m.Lock(ctx); err != nil {
			return err
		}
		return m.Unlock(ctx)
	}
}

// BenchmarkCycle compares uncontended locks with the client's own mutex, on one
// server.
func BenchmarkCycle(b *testing.B) {
	s := start(b, nil)
	session, err := concurrency.NewSession(plain(b, s))
	must(b, err)
	defer session.Close()
	own := connect(b, on(s))
	for _, workers := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprintf("locker=mutex/clients=%d", workers), func(b *testing.B) { run(b, workers, 1, mutex(session)) })
		b.Run(fmt.Sprintf("locker=etcd/clients=%d", workers), func(b *testing.B) { run(b, workers, 1, singly(own)) })
	}
	for _, workers := range []int{1, 4} {
		b.Run(fmt.Sprintf("locker=etcd-by-32/clients=%d", workers), func(b *testing.B) { run(b, workers, 32, batched(own)) })
	}
}
