package measure

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/results"
)

const (
	// openShare is the part of the measured time that the open loop gets.
	openShare = 2
	// openLoad is the part of the closed loop's rate that it offers, when the
	// user names none: all subjects are then equally far from their limits.
	openLoad = 0.5
)

// openLoop is the same work as that of the closed loop, with each cycle at a
// time that was fixed before, so that a store that stalls is asked as
// often as ever, and every cycle that had to wait for it counts from when it
// was due. A closed loop stops asking instead, and has few samples of the
// stall: its omission is coordinated with the stall.
type openLoop struct {
	in       Input
	rate     float64 // cycles per second over all callers
	callers  []*load.Caller
	queues   []chan int64 // when cycles are due, by caller
	deadline int64        // what has not started by then is dropped

	acquires, lags [][]int64 // by caller
	drops          []int
}

// openFor is how long cycles become due, and how long after that they may
// still start.
func openFor(in Input) time.Duration { return in.Measure / openShare }

// runOpen runs an open loop at the given rate, and adds its figures to cell.
func runOpen(ctx context.Context, in Input, cs []*load.Caller, rate float64, cell *results.Cell) {
	from := in.Clock.Now()
	until := from + int64(openFor(in))
	arrivals := load.Poisson(rand.New(rand.NewPCG(in.Seed, uint64(in.Clients))), rate, len(cs), from, until)
	o := &openLoop{
		in: in, rate: rate, callers: cs, deadline: until + int64(max(openFor(in), openGrace)),
		queues: make([]chan int64, len(cs)), acquires: make([][]int64, len(cs)), lags: make([][]int64, len(cs)), drops: make([]int, len(cs)),
	}
	each := make([]int, len(cs))
	for _, a := range arrivals {
		each[a.Caller]++
	}
	for i, n := range each {
		o.queues[i] = make(chan int64, n)
	}
	load.Workers(len(cs)+1, func(i int) {
		if i < len(cs) {
			o.work(ctx, i)
			return
		}
		load.Pace(ctx, in.Clock, arrivals, func(a load.Arrival) { o.queues[a.Caller] <- a.Due })
		for _, q := range o.queues {
			close(q)
		}
	})
	o.figures(cell)
}

// openGrace is the least time after the end that cycles get to start.
const openGrace = 500 * time.Millisecond

// work does the cycles of one caller as they become due.
func (o *openLoop) work(ctx context.Context, i int) {
	c := o.callers[i]
	uncancelled := context.WithoutCancel(ctx)
	free := c.Clock.Now()
	for due := range o.queues[i] {
		sent := c.Clock.Now()
		if ctx.Err() != nil || sent > o.deadline {
			o.drops[i]++
			continue
		}
		// What the caller could not help: it was free, and late all the same.
		o.lags[i] = append(o.lags[i], max(0, sent-max(due, free)))
		lease, ok := c.Acquire(ctx)
		if ok {
			o.acquires[i] = append(o.acquires[i], c.Attempts[len(c.Attempts)-1].Answered-due)
			ok = c.Release(uncancelled, lease)
		}
		if !ok {
			load.Pause(ctx)
		}
		free = c.Clock.Now()
	}
}

func (o *openLoop) figures(cell *results.Cell) {
	acquires, lags, drops := slices.Concat(o.acquires...), slices.Concat(o.lags...), 0
	for _, n := range o.drops {
		drops += n
	}
	cell.Latencies["open-acquire"], cell.Latencies["lag"] = acquires, lags
	cell.Values["offered/s"], cell.Values["drops"] = o.rate, float64(drops)
	longest(cell, "open-acquire")
	refused := 0.0
	if !keptUp(acquires, lags, drops) {
		refused = 1
	}
	cell.Values["open-refused"] = refused
}

// keptUp reports whether the latencies of an open loop are those of the
// backend: every cycle was sent, and neither the middle nor the tail is by more
// than half the lateness of the generator itself.
func keptUp(acquires, lags []int64, drops int) bool {
	if drops > 0 || len(acquires) == 0 {
		return false
	}
	slices.Sort(acquires)
	slices.Sort(lags)
	for _, q := range []float64{0.5, 0.99} {
		if results.Quantile(lags, q) > results.Quantile(acquires, q)/2 {
			return false
		}
	}
	return true
}
