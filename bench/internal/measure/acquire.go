package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/bench/internal/results"
)

var acquire = Scenario{
	Name:      "acquire",
	Doc:       "uncontended latency and throughput: each caller acquires, renews and releases another lock, in a closed loop; then acquire again at times fixed before, half as often, counted from when it was due",
	Workloads: acquireWorkloads,
	Takes:     func(in Input) time.Duration { return in.WarmUp + in.Measure + openFor(in) + in.Measure/renewShare },
	Run:       runAcquire,
}

// Callers first acquire and release in cycles for the measured time. Then they only renew their
// leases, for an additional 1/renewShare of the measured time.
const renewShare = 4

func acquireWorkloads(a Overrides) []Workload {
	return product([]int{0}, orUsual(a.Clients, 1, 8, 64), []int{0}, []time.Duration{0})
}

func runAcquire(ctx context.Context, in Input) (results.Cell, error) {
	cs, err := callers(in)
	if err != nil {
		return results.Cell{}, err
	}
	total := in.WarmUp + in.Measure + in.Measure/renewShare
	bounded, cancel := context.WithTimeout(ctx, total+openFor(in)+graceOf(in.Measure))
	defer cancel()

	if in.Clients > 1 { // a relay cannot tell apart the data of several callers
		in.Relays = nil
	}
	passing := in.watch()
	defer passing.end()
	from := in.Clock.Now() + int64(in.WarmUp)
	until := from + int64(in.Measure)
	load.Workers(in.Clients, func(i int) { cs[i].Cycle(bounded, from, until, 0, nil) })
	cycles, _ := load.Collect(cs)
	renewals := renew(bounded, cs, in.Measure/renewShare)
	passing.end()
	cell := passing.closedLoop(cycles, from, until, in.Clients)
	passing.note(&cell, "renew", renewals)
	longest(&cell, "renew")
	released, rate := len(cell.Latencies["release"]), cell.Values["cycles/s"]
	if in.Rate > 0 {
		rate = in.Rate / openLoad
	}
	if rate > 0 {
		runOpen(bounded, in, cs, rate*openLoad, &cell)
	}
	attempts, first := load.Collect(cs)
	cell.Attempts = attempts
	if ctx.Err() != nil {
		return cell, ctx.Err()
	}
	if released == 0 || len(renewals) == 0 {
		return cell, fmt.Errorf("%w within %v: %w", ErrNothingDone, total, orStalled(first))
	}
	return cell, nil
}

// renew makes every caller hold a lease, and renew it again and again for the duration d.
func renew(ctx context.Context, cs []*load.Caller, d time.Duration) []span {
	renewals := make([][]span, len(cs))
	until := cs[0].Clock.Now() + int64(d)
	load.Workers(len(cs), func(i int) {
		c := cs[i]
		lease, ok := c.Acquire(ctx)
		if !ok {
			return
		}
		for ctx.Err() == nil {
			sent := c.Clock.Now()
			took, ok := c.Renew(ctx, lease)
			if !ok {
				break
			}
			renewals[i] = append(renewals[i], span{sent, sent + took})
			if c.Clock.Now() >= until {
				break
			}
		}
		c.Release(context.WithoutCancel(ctx), lease)
	})
	return slices.Concat(renewals...)
}

// closedLoop returns the figures of cycles that callers began one after the other.
func (t *trips) closedLoop(attempts []results.Attempt, from, until int64, callers int) results.Cell {
	cell := results.Cell{Attempts: attempts, Latencies: map[string][]int64{}, Values: map[string]float64{}}
	acquires, releases := measured(attempts, from)
	t.note(&cell, "acquire", acquires)
	t.note(&cell, "release", releases)
	longest(&cell, "acquire", "release")
	cell.Cycles, cell.Elapsed = doneIn(attempts, from, until, callers)
	cell.Values["cycles/s"] = float64(cell.Cycles) / cell.Elapsed.Seconds()
	return cell
}

// measured returns the acquires and releases of the cycles that began at the time from or later.
func measured(attempts []results.Attempt, from int64) (acquires, releases []span) {
	for _, a := range attempts {
		if a.Asked < from || a.Outcome != results.Granted || a.End != results.EndReleased {
			continue
		}
		acquires = append(acquires, span{a.Asked, a.Answered})
		releases = append(releases, span{a.Ended, a.Done})
	}
	return acquires, releases
}

func orStalled(err error) error {
	if err == nil {
		return errors.New("the backend does not answer")
	}
	return err
}

// longest adds the longest time of each operation to the figures, because medians and other
// quantiles do not show a stall of the server.
func longest(cell *results.Cell, ops ...string) {
	for _, op := range ops {
		if took := cell.Latencies[op]; len(took) > 0 {
			cell.Values["max-ns/"+op] = float64(slices.Max(took))
		}
	}
}

const (
	// The open loop, which starts cycles at fixed times, lasts for 1/openShare of the measured time.
	openShare = 2
	// openLoad is the default rate of the open loop, as a fraction of the rate that the callers
	// reached in the closed loop. So each backend or library runs equally far from its own limit.
	openLoad = 0.5
)

// openFor returns the length of the time in which cycles of the open loop are due. After this time,
// late cycles may still start, for the longer of openFor and openGrace.
func openFor(in Input) time.Duration { return in.Measure / openShare }

// runOpen repeats the cycles of the scenario as an open loop, in which each cycle is due at a fixed
// time. The rate parameter is the number of due cycles per second for all callers together. A stall
// does not reduce this number, and the latency of a late cycle counts from its due time. In a
// closed loop, callers would not ask during a stall, so too few samples would show the stall. This
// mistake is called coordinated omission.
func runOpen(ctx context.Context, in Input, cs []*load.Caller, rate float64, cell *results.Cell) {
	from := in.Clock.Now()
	until := from + int64(openFor(in))
	arrivals := load.Poisson(rand.New(rand.NewPCG(in.Seed, uint64(in.Clients))), rate, len(cs), from, until)
	each := make([]int, len(cs))
	for _, a := range arrivals {
		each[a.Caller]++
	}
	all := make([]*openCaller, len(cs))
	for i, c := range cs {
		all[i] = &openCaller{Caller: c, due: make(chan int64, each[i]), deadline: until + int64(max(openFor(in), openGrace))}
	}
	load.Workers(len(cs)+1, func(i int) {
		if i < len(cs) {
			all[i].work(ctx)
			return
		}
		load.Pace(ctx, in.Clock, arrivals, func(a load.Arrival) { all[a.Caller].due <- a.Due })
		for _, c := range all {
			close(c.due)
		}
	})
	var acquires, lags []int64
	for _, c := range all {
		acquires, lags = append(acquires, c.acquires...), append(lags, c.lags...)
	}
	// A cycle that did not start, or whose acquire failed, is a drop, because no latency shows it.
	drops, refused := len(arrivals)-len(acquires), 0.0
	if !keptUp(acquires, lags, drops) {
		refused = 1
	}
	cell.Latencies["open-acquire"], cell.Latencies["lag"] = acquires, lags
	cell.Values["offered/s"], cell.Values["drops"], cell.Values["open-refused"] = rate, float64(drops), refused
	longest(cell, "open-acquire")
}

// openGrace is the shortest time after the last due time in which late cycles may still start.
const openGrace = 500 * time.Millisecond

// openCaller starts each cycle when it is due or, if later, when its previous cycle has ended.
type openCaller struct {
	*load.Caller
	due      chan int64
	deadline int64 // a cycle that has not started by the deadline is dropped

	acquires, lags []int64
}

func (c *openCaller) work(ctx context.Context) {
	uncancelled := context.WithoutCancel(ctx)
	free := c.Clock.Now()
	for due := range c.due {
		sent := c.Clock.Now()
		if ctx.Err() != nil || sent > c.deadline {
			continue
		}
		// The load generator caused this delay: the caller was free, but the cycle started late.
		c.lags = append(c.lags, max(0, sent-max(due, free)))
		lease, ok := c.Acquire(ctx)
		if ok {
			c.acquires = append(c.acquires, c.Attempts[len(c.Attempts)-1].Answered-due)
			ok = c.Release(uncancelled, lease)
		}
		if !ok {
			load.Pause(ctx)
		}
		free = c.Clock.Now()
	}
}

// keptUp reports whether the load generator of an open loop kept up: every cycle got its lock, and
// the delay by the generator was at most half of the latency, at p50 and at p99.
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

var ErrFloor = errors.New("the call failed")

// Floor returns a scenario in which callers call a function that does no work, in a loop. It shows
// the smallest cost that any operation can have. Its workloads are those of scenario acquire.
func Floor(call func(context.Context) error) Scenario {
	return Scenario{
		Name:      "floor",
		Workloads: acquireWorkloads,
		Takes:     func(in Input) time.Duration { return in.WarmUp + in.Measure },
		Run:       func(ctx context.Context, in Input) (results.Cell, error) { return runFloor(ctx, in, call) },
	}
}

func runFloor(ctx context.Context, in Input, call func(context.Context) error) (results.Cell, error) {
	bounded, cancel := context.WithTimeout(ctx, in.WarmUp+in.Measure+graceOf(in.Measure))
	defer cancel()
	from := in.Clock.Now() + int64(in.WarmUp)
	until := from + int64(in.Measure)
	calls := make([][]results.Attempt, in.Clients)
	errs := make([]error, in.Clients)
	load.Workers(in.Clients, func(i int) {
		for counts := false; bounded.Err() == nil; {
			asked := in.Clock.Now()
			if counts && asked >= until {
				return
			}
			counts = asked >= from
			if errs[i] = call(bounded); errs[i] != nil {
				return
			}
			now := in.Clock.Now()
			calls[i] = append(calls[i], results.Attempt{Asked: asked, Answered: now, Done: now, Outcome: results.Granted, End: results.EndReleased})
		}
	})
	cell := results.Cell{Latencies: map[string][]int64{}, Values: map[string]float64{}}
	if err := cmp.Or(errs...); err != nil && ctx.Err() == nil {
		return cell, fmt.Errorf("%w: %w", ErrFloor, err)
	}
	all := slices.Concat(calls...)
	took, _ := measured(all, from)
	(&trips{}).note(&cell, "call", took)
	cell.Cycles, cell.Elapsed = doneIn(all, from, until, in.Clients)
	cell.Values["calls/s"] = float64(cell.Cycles) / cell.Elapsed.Seconds()
	longest(&cell, "call")
	return cell, ctx.Err()
}
