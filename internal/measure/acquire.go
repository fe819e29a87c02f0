package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/results"
)

var acquire = Scenario{
	Name:      "acquire",
	Doc:       "what a lock costs when nobody is in the way: latency of acquire, renew and release, and cycles per second, each caller on a lock of its own, in a closed loop; then acquire again at times fixed before, half as often, counted from when it was due",
	Workloads: acquireWorkloads,
	Takes:     func(in Input) time.Duration { return in.WarmUp + in.Measure + openFor(in) + in.Measure/renewShare },
	Run:       runAcquire,
}

// renewShare is the part of the measured time in which leases are held and
// renewed over and over, after the cycles.
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

	from := in.Clock.Now() + int64(in.WarmUp)
	until := from + int64(in.Measure)
	load.Workers(in.Clients, func(i int) { cs[i].Cycle(bounded, from, until, 0, nil) })
	cycles, _ := collect(cs)
	acquires, releases, last := measured(cycles, from)
	cell := results.Cell{Cycles: len(releases), Elapsed: time.Duration(max(last, until) - from)}
	rate := float64(cell.Cycles) / cell.Elapsed.Seconds()
	renewals := renew(bounded, cs, in.Measure/renewShare)
	cell.Latencies = map[string][]int64{"acquire": acquires, "release": releases, "renew": renewals}
	cell.Values = map[string]float64{"cycles/s": rate}
	longest(&cell, "acquire", "release", "renew")
	if in.Rate > 0 {
		rate = in.Rate / openLoad
	}
	if rate > 0 {
		runOpen(bounded, in, cs, rate*openLoad, &cell)
	}
	attempts, first := collect(cs)
	cell.Attempts = attempts
	if ctx.Err() != nil {
		return cell, ctx.Err()
	}
	if cell.Cycles == 0 || len(renewals) == 0 {
		return cell, fmt.Errorf("%w within %v: %w", ErrNothingDone, total, orStalled(first))
	}
	return cell, nil
}

// renew lets every caller hold a lease and renew it for the given time, and
// returns how long the renewals took.
func renew(ctx context.Context, cs []*load.Caller, d time.Duration) []int64 {
	took := make([][]int64, len(cs))
	until := cs[0].Clock.Now() + int64(d)
	load.Workers(len(cs), func(i int) {
		c := cs[i]
		lease, ok := c.Acquire(ctx)
		if !ok {
			return
		}
		for ctx.Err() == nil {
			ns, ok := c.Renew(ctx, lease)
			if !ok {
				break
			}
			took[i] = append(took[i], ns)
			if c.Clock.Now() >= until {
				break
			}
		}
		c.Release(context.WithoutCancel(ctx), lease)
	})
	return slices.Concat(took...)
}

// measured picks the latencies of the cycles that began at or after from, and
// tells when the last one was done.
func measured(attempts []results.Attempt, from int64) (acquires, releases []int64, last int64) {
	for _, a := range attempts {
		if a.Asked < from || a.Outcome != results.Granted || a.End != results.EndReleased {
			continue
		}
		acquires = append(acquires, a.Answered-a.Asked)
		releases = append(releases, a.Done-a.Ended)
		last = max(last, a.Done)
	}
	return acquires, releases, last
}

func orStalled(err error) error {
	if err == nil {
		return errors.New("the backend does not answer")
	}
	return err
}

// longest adds how long the longest of operations took, where there are any: a
// server that stalled is seen in nothing else.
func longest(cell *results.Cell, ops ...string) {
	for _, op := range ops {
		if took := cell.Latencies[op]; len(took) > 0 {
			cell.Values["max-ns/"+op] = float64(slices.Max(took))
		}
	}
}
