package scenario

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockbench/lockbench/bench/load"
	"github.com/lockbench/lockbench/bench/record"
)

var throughput = Scenario{
	Name:   "throughput",
	Proves: "how many cycles per second go through, and what latency they then have: more and more callers in a closed loop, each cycle on a random one of many locks, and callers that hold for 1 ms one of a few",
	Shapes: throughputShapes,
	Takes:  func(in Input) time.Duration { return in.WarmUp + in.Measure },
	Run:    runThroughput,
}

const (
	// manyKeys are so many locks that callers seldom meet.
	manyKeys = 1024
	// fewKeys, held for fewHold, are so few that callers wait for each other.
	fewKeys = 8
	fewHold = time.Millisecond
)

// throughputShapes are points of the curve of latency against load, and one
// cell in which callers wait for each other. What the user names replaces them.
func throughputShapes(a Asked) []Shape {
	curve, crowded := []int{1, 4, 16, 64, 256}, []int{16, 64}
	if a.Quick {
		curve, crowded = []int{256}, []int{64}
	}
	if len(a.Clients) > 0 {
		curve = a.Clients
	}
	if len(a.Clients) == 0 && len(a.Keys) == 0 && len(a.Hold) == 0 {
		return append(product(curve, []int{manyKeys}, []time.Duration{0}), product(crowded, []int{fewKeys}, []time.Duration{fewHold})...)
	}
	keys, hold := a.Keys, a.Hold
	if len(keys) == 0 {
		keys = []int{manyKeys}
	}
	if len(hold) == 0 {
		hold = []time.Duration{0}
	}
	return product(curve, keys, hold)
}

func product(clients, keys []int, hold []time.Duration) []Shape {
	var out []Shape
	for _, k := range keys {
		for _, h := range hold {
			for _, c := range clients {
				out = append(out, Shape{Clients: c, Keys: k, Hold: h})
			}
		}
	}
	return out
}

func runThroughput(ctx context.Context, in Input) (record.Cell, error) {
	cs := make([]*load.Caller, in.Clients)
	for i := range cs {
		cs[i] = &load.Caller{Client: int32(i), Clock: in.Clock}
	}
	bounded, cancel := context.WithTimeout(ctx, in.WarmUp+in.Measure+grace)
	defer cancel()
	from := in.Clock.Now() + int64(in.WarmUp)
	until := from + int64(in.Measure)
	load.Workers(in.Clients, func(i int) {
		w := wanderer{Caller: cs[i], in: in, locks: make([]load.Lock, len(in.Names)), rand: rand.New(rand.NewPCG(in.Seed, uint64(i)))}
		cycle(bounded, cs[i], from, until, in.Hold, w.choose)
	})

	attempts, first := collect(cs)
	cell := record.Cell{Attempts: attempts}
	acquires, releases, last := measured(attempts, from)
	cell.Cycles = len(releases)
	cell.Elapsed = time.Duration(max(last, until) - from)
	cell.Latencies = map[string][]int64{"acquire": acquires, "release": releases}
	cell.Values = map[string]float64{"cycles/s": float64(cell.Cycles) / cell.Elapsed.Seconds()}
	if ctx.Err() != nil {
		return cell, ctx.Err()
	}
	if cell.Cycles == 0 {
		return cell, fmt.Errorf("%w within %v: %w", ErrNothingDone, in.WarmUp+in.Measure, orStalled(first))
	}
	return cell, nil
}

// wanderer is a caller that takes another lock each time.
type wanderer struct {
	*load.Caller
	in    Input
	locks []load.Lock // made when they are first chosen
	rand  *rand.Rand
}

// choose picks the lock of the next cycle.
func (w *wanderer) choose() error {
	n := w.rand.IntN(len(w.locks))
	if w.locks[n] == nil {
		lock, err := w.in.Locker.Lock(w.in.Names[n], w.in.TTL)
		if err != nil {
			return err
		}
		w.locks[n] = lock
	}
	w.Name, w.Lock = int32(n), w.locks[n]
	return nil
}
