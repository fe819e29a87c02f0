package scenario

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/bench/load"
	"github.com/lockbench/lockbench/bench/record"
)

var contend = Scenario{
	Name:       "contend",
	Proves:     "what waiting costs: callers of one host want one lock and hold it for 5 ms; how long nobody has it between two of them, how fair the order is, and the longest wait",
	MinClients: 2,
	Clients:    []int{8, 32},
	Takes:      func(in Input) time.Duration { return in.WarmUp + contendSpan(in) },
	Run:        runContend,
}

const (
	// holdFor is the critical section.
	holdFor = 5 * time.Millisecond
	// contendFor is how long it goes on at least, in measured times: libraries
	// that poll need some time for a few grants.
	contendFor = 2
	// turnsEach is how often each caller could have its turn: with less, the
	// fairness would be that of the window.
	turnsEach = 3
)

func contendSpan(in Input) time.Duration {
	return max(contendFor*in.Measure, turnsEach*time.Duration(in.Clients)*holdFor)
}

// runContend makes every hand-over go to another caller: one that has released
// asks again only after somebody else was granted.
//
// Note: letting it ask at once hides the hand-over of every polling library.
// The old holder barges in, and the waiters starve.
func runContend(ctx context.Context, in Input) (record.Cell, error) {
	in.Names = in.Names[:1]
	cs, err := callers(in)
	if err != nil {
		return record.Cell{}, err
	}
	span := contendSpan(in)
	bounded, cancel := context.WithTimeout(ctx, in.WarmUp+span+grace)
	defer cancel()
	from := in.Clock.Now() + int64(in.WarmUp)
	until := from + int64(span)
	asking, stop := context.WithTimeout(bounded, in.WarmUp+span)
	defer stop()
	turns := newTurns()
	context.AfterFunc(asking, turns.end)
	load.Workers(in.Clients, func(i int) { take(bounded, asking, cs[i], turns) })

	attempts, first := collect(cs)
	cell := record.Cell{Attempts: attempts, Elapsed: span}
	grants := grantsIn(attempts, from, until)
	cell.Cycles = len(grants)
	cell.Latencies = map[string][]int64{"handoff": handoffs(grants), "wait": waits(grants)}
	if ctx.Err() != nil {
		return cell, ctx.Err()
	}
	if len(grants) < 2 {
		return cell, fmt.Errorf("%w within %v: %w", ErrNothingDone, span, orStalled(first))
	}
	cell.Values = map[string]float64{
		"grants/s":    float64(len(grants)) / span.Seconds(),
		"jain":        jain(grants, in.Clients),
		"max-ns/wait": float64(slices.Max(cell.Latencies["wait"])),
	}
	return cell, nil
}

// take acquires, holds and releases until asking ends.
func take(ctx, asking context.Context, c *load.Caller, t *turns) {
	uncancelled := context.WithoutCancel(ctx)
	for asking.Err() == nil {
		lease, ok := c.Acquire(asking)
		if !ok {
			load.Pause(asking)
			continue
		}
		mine := t.granted()
		held(ctx, holdFor)
		c.Release(uncancelled, lease)
		t.await(mine)
	}
}

// turns lets callers wait for the grant that follows theirs.
type turns struct {
	mu     sync.Mutex
	change *sync.Cond
	count  int
	ended  bool
}

func newTurns() *turns {
	t := &turns{}
	t.change = sync.NewCond(&t.mu)
	return t
}

func (t *turns) granted() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count++
	t.change.Broadcast()
	return t.count
}

func (t *turns) await(mine int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.count == mine && !t.ended {
		t.change.Wait()
	}
}

func (t *turns) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	t.change.Broadcast()
}

// grantsIn picks the leases that were released in the window, in the order in
// which they were granted.
func grantsIn(attempts []record.Attempt, from, until int64) []record.Attempt {
	var out []record.Attempt
	for _, a := range attempts {
		if a.Outcome == record.Granted && a.End == record.EndReleased && a.Answered >= from && a.Done <= until {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b record.Attempt) int { return cmp.Compare(a.Answered, b.Answered) })
	return out
}

// handoffs are the times from a release's sending to the next grant's return.
func handoffs(grants []record.Attempt) []int64 {
	var out []int64
	for i := 1; i < len(grants); i++ {
		out = append(out, max(0, grants[i].Answered-grants[i-1].Ended))
	}
	return out
}

func waits(grants []record.Attempt) []int64 {
	var out []int64
	for _, g := range grants {
		out = append(out, g.Answered-g.Asked)
	}
	return out
}

// jain is the fairness index of the grants per caller: 1 when all had as many,
// 1/n when one had them all (Jain, Chiu, Hawe: A quantitative measure of
// fairness, DEC-TR-301, 1984).
func jain(grants []record.Attempt, clients int) float64 {
	count := make([]float64, clients)
	for _, g := range grants {
		count[g.Client]++
	}
	var sum, squares float64
	for _, n := range count {
		sum += n
		squares += n * n
	}
	return sum * sum / (float64(clients) * squares)
}
