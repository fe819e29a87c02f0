package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/results"
	"github.com/lockbench/lockbench/internal/servers"
)

// queued is how long waiters get to enter the queue.
const queued = 50 * time.Millisecond

// idleFor is how long waiters wait for nothing, 0 when nobody counts.
func idleFor(in Input) time.Duration {
	if in.Commands == nil {
		return 0
	}
	return queued + in.Measure/2
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
	proc.Sleep(ctx, queued)
	from := in.Clock.Now()
	c := <-in.count(ctx, from, from+int64(in.Measure/2))
	stop()
	<-done
	cs[0].Release(context.WithoutCancel(ctx), lease)
	return c.Run / time.Duration(c.until-c.from).Seconds(), c.err
}

// counted is what each server has done in a time.
type counted struct {
	from, until int64
	servers.Served
	err error
}

// count reads the counter of the servers at two times. What it sends has one
// element, at once where nobody counts.
func (in Input) count(ctx context.Context, from, until int64) <-chan counted {
	out := make(chan counted, 1)
	if in.Commands == nil {
		out <- counted{}
		return out
	}
	go func() {
		proc.Sleep(ctx, time.Duration(from-in.Clock.Now()))
		before, err := in.Commands(ctx)
		c := counted{from: in.Clock.Now(), err: err}
		proc.Sleep(ctx, time.Duration(until-in.Clock.Now()))
		after, err := in.Commands(ctx)
		c.until, c.Served, c.err = in.Clock.Now(), after.Since(before), errors.Join(c.err, err)
		out <- c
	}()
	return out
}

// grants counts those that came in that time.
func (c counted) grants(attempts []results.Attempt) (n int) {
	for _, a := range attempts {
		if a.Outcome == results.Granted && a.Answered >= c.from && a.Answered < c.until {
			n++
		}
	}
	return n
}
