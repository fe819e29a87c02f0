package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/bench/internal/results"
)

var throughput = Scenario{
	Name:      "throughput",
	Doc:       "peak throughput in cycles per second, and the latency at it: more and more callers, of one host or of several processes, in a closed loop, each cycle on a random one of many locks, and callers that hold for 1 ms one of a few",
	Workloads: throughputWorkloads,
	Takes:     func(in Input) time.Duration { return in.WarmUp + in.Measure },
	Run:       runThroughput,
}

const (
	// manyKeys is a number of locks so large that two callers rarely want the same lock.
	manyKeys = 1024
	// fewKeys is a number of locks so small that callers wait for each other. If there are so few
	// locks, each caller holds its lock for fewHold.
	fewKeys = 8
	fewHold = time.Millisecond
)

// throughputWorkloads returns workloads with growing numbers of callers. It also returns workloads
// with so few locks that callers wait for each other.
func throughputWorkloads(a Overrides) []Workload {
	curve, crowded := []int{1, 4, 16, 64, 256}, []int{16, 64}
	if a.Quick {
		curve, crowded = []int{256}, []int{64}
	}
	hosts := hostsOf(a, 1)
	if len(a.Clients) == 0 && len(a.Keys) == 0 && len(a.Hold) == 0 {
		return append(product(hosts, curve, []int{manyKeys}, []time.Duration{0}), product(hosts, crowded, []int{fewKeys}, []time.Duration{fewHold})...)
	}
	return product(hosts, orUsual(a.Clients, curve...), orUsual(a.Keys, manyKeys), orUsual(a.Hold, 0))
}

func product(hosts, clients, keys []int, hold []time.Duration) []Workload {
	var out []Workload
	for _, n := range hosts {
		for _, k := range keys {
			for _, h := range hold {
				for _, c := range clients {
					out = append(out, Workload{Hosts: n, Clients: c, Keys: k, Hold: h})
				}
			}
		}
	}
	return out
}

func runThroughput(ctx context.Context, in Input) (cell results.Cell, err error) {
	hosts, end, err := startHosts(ctx, in)
	if err != nil {
		return cell, err
	}
	defer func() { err = errors.Join(err, end()) }()
	bounded, cancel := context.WithTimeout(ctx, in.WarmUp+in.Measure+graceOf(in.Measure))
	defer cancel()
	from := in.Clock.Now() + int64(in.WarmUp)
	until := from + int64(in.Measure)
	attempts, first, err := cycleIn(bounded, in, hosts, load.Cycles{
		Names: in.Names, TTL: in.TTL, Hold: in.Hold, Seed: in.Seed, Callers: in.Clients, From: from, Until: until,
	})
	if err != nil {
		return cell, err
	}
	passing := &trips{} // without relays, because they cannot tell apart the data of several callers
	cell = passing.closedLoop(attempts, from, until, contenders(in))
	if ctx.Err() != nil {
		return cell, ctx.Err()
	}
	if cell.Cycles == 0 || len(cell.Latencies["release"]) == 0 {
		return cell, fmt.Errorf("%w within %v: %w", ErrNothingDone, in.WarmUp+in.Measure, orStalled(first))
	}
	return cell, nil
}

// doneIn counts the cycles that ended between the times from and until, no matter when they began.
// If fewer cycles ended than there are callers, doneIn extends the time until both numbers are
// equal, because a store that works in batches ends many cycles at once.
//
// Note: do not divide the number of cycles that began in the measured time by the time until the
// last of them ended. Near the end of that time, fewer and fewer callers are active. A store with a
// constant rate would seem slower with more callers or longer cycles.
func doneIn(attempts []results.Attempt, from, until int64, callers int) (cycles int, elapsed time.Duration) {
	var done []int64
	for _, a := range attempts {
		if a.Outcome == results.Granted && a.End == results.EndReleased && a.Done >= from {
			done = append(done, a.Done)
		}
	}
	slices.Sort(done)
	cycles, _ = slices.BinarySearch(done, until)
	if least := min(callers, len(done)); cycles < least {
		return least, time.Duration(max(until, done[least-1]) - from)
	}
	return cycles, time.Duration(until - from)
}
