package redis

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

var owners atomic.Int64

func cycle(b *testing.B, be *Backend, name string) {
	r := driver.Request{Name: name, Owner: fmt.Sprint("owner-0123456789-", owners.Add(1)), Label: "host:1", TTL: 10 * time.Second}
	token, err := be.TryAcquire(b.Context(), r)
	if err != nil {
		b.Error(err)
		return
	}
	r.Token = token
	if err := be.Release(b.Context(), r); err != nil {
		b.Error(err)
	}
}

// One operation of this benchmark is an acquire and a release.
func BenchmarkCycle(b *testing.B) {
	s := start(b, nil)
	for _, clients := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprint("clients=", clients), func(b *testing.B) {
			be := connect(b, at(s))
			var next atomic.Int64
			var work sync.WaitGroup
			for c := range clients {
				work.Go(func() {
					name := fmt.Sprint("lock-", c)
					for next.Add(1) <= int64(b.N) {
						cycle(b, be, name)
					}
				})
			}
			work.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
		})
	}
}

// One operation of this benchmark is an acquire and a release, in batches as the plugin sends them.
func BenchmarkBatch(b *testing.B) {
	s := start(b, nil)
	for _, size := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprint("size=", size), func(b *testing.B) {
			be := connect(b, at(s))
			ops := make([]driver.Op, size)
			for n := 0; n < b.N; n += size {
				for i := range ops {
					ops[i] = driver.Op{Kind: driver.OpAcquire, Request: driver.Request{
						Name: fmt.Sprint("lock-", i), Owner: fmt.Sprint("owner-0123456789-", owners.Add(1)), Label: "host:1", TTL: 10 * time.Second}}
				}
				for i, r := range be.Batch(context.Background(), ops) {
					ops[i].Kind, ops[i].Token = driver.OpRelease, r.Token
				}
				for _, r := range be.Batch(context.Background(), ops) {
					if r.Err != nil {
						b.Fatal(r.Err)
					}
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
		})
	}
}

// One operation of this benchmark is a release and the grant to the next waiter, on another host.
func BenchmarkHandoff(b *testing.B) {
	s := start(b, nil)
	const hosts = 4
	turns := make(chan driver.Request, hosts)
	var work sync.WaitGroup
	ctx, cancel := context.WithCancel(b.Context())
	for h := range hosts {
		be := connect(b, at(s))
		work.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				r := driver.Request{Name: "one", Owner: fmt.Sprint("o", h, "-", i), TTL: 10 * time.Second}
				for ctx.Err() == nil {
					token, err := be.TryAcquire(ctx, r)
					if err == nil {
						r.Token = token
						turns <- r
						break
					}
					if g, _ := be.Wait(ctx, r, time.Second); g.Token != 0 {
						r.Token = g.Token
						turns <- r
						break
					}
				}
			}
		})
	}
	be := connect(b, at(s))
	holder := <-turns
	for b.Loop() {
		if err := be.Release(b.Context(), holder); err != nil {
			b.Fatal(err)
		}
		holder = <-turns
	}
	cancel()
	work.Wait()
}
