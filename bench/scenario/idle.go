package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/bench/load"
)

// queued is how long waiters get to enter the queue.
const queued = 100 * time.Millisecond

// idleFor is how long waiters wait for nothing, 0 when nobody counts.
func idleFor(in Input) time.Duration {
	if in.Commands == nil {
		return 0
	}
	return queued + in.Measure
}

// commands reads the counter of the servers, 0 when there is none.
func (in Input) commands(ctx context.Context) (float64, error) {
	if in.Commands == nil {
		return 0, nil
	}
	return in.Commands(ctx)
}

// idle lets all callers but one wait for a lock that stays held, and returns how
// many commands per second each server is given meanwhile.
func idle(ctx context.Context, in Input, cs []*load.Caller) (float64, error) {
	lease, ok := cs[0].Acquire(ctx)
	if !ok {
		return 0, fmt.Errorf("%w: %w", ErrNothingDone, orStalled(cs[0].Err))
	}
	waiting, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		load.Workers(len(cs)-1, func(i int) {
			if lease, ok := cs[i+1].Acquire(waiting); ok { // for the checker to find, unless it was at the end
				cs[i+1].Release(context.WithoutCancel(ctx), lease)
			}
		})
	}()
	perSecond, err := in.commandRate(waiting)
	stop()
	<-done
	cs[0].Release(context.WithoutCancel(ctx), lease)
	return perSecond, err
}

// commandRate counts commands for the measured time, once the waiters wait.
func (in Input) commandRate(ctx context.Context) (float64, error) {
	held(ctx, queued)
	from := in.Clock.Now()
	before, err := in.Commands(ctx)
	if err != nil {
		return 0, err
	}
	held(ctx, in.Measure)
	after, err := in.Commands(ctx)
	return (after - before) / time.Duration(in.Clock.Now()-from).Seconds(), err
}
