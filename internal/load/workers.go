package load

import (
	"context"
	"sync"
	"time"
)

// Workers runs body in n goroutines that start together, and returns when all
// have ended. Worker numbers go from 0 to n-1.
func Workers(n int, body func(worker int)) {
	var ready, done sync.WaitGroup
	gate := make(chan struct{})
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			<-gate
			body(i)
		})
	}
	ready.Wait()
	close(gate)
	done.Wait()
}

// pauseAfterError keeps a closed loop against a store that is down from
// spinning.
const pauseAfterError = 5 * time.Millisecond

// Pause waits a moment after an error, or until ctx ends.
func Pause(ctx context.Context) { Sleep(ctx, pauseAfterError) }

// Sleep waits for d, and returns false when ctx ends before. It returns at once
// when d is not above 0.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
