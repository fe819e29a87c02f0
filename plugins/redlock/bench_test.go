package redlock

import (
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
	for _, clients := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprint("clients=", clients), func(b *testing.B) {
			_, be := cluster(b, nil)
			var next atomic.Int64
			var work sync.WaitGroup
			b.ResetTimer()
			for c := range clients {
				work.Go(func() {
					name := fmt.Sprint("lock-", c)
					for next.Add(1) <= int64(b.N) {
						cycle(b, be, name)
					}
				})
			}
			work.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
		})
	}
}
