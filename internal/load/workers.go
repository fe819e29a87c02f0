package load

import (
	"context"
	"sync"
	"time"

	"github.com/lockbench/lockbench/internal/proc"
)

// Workers runs body in n goroutines that start together, and returns when all
// have ended. Worker numbers go from 0 to n-1.
func Workers(n int, body func(worker int)) {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			<-start
			body(i)
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
}

// pauseAfterError keeps a closed loop against a store that is down from
// spinning.
const pauseAfterError = 5 * time.Millisecond

// Pause waits a moment after an error, or until ctx ends.
func Pause(ctx context.Context) { proc.Sleep(ctx, pauseAfterError) }
