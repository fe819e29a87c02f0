package measure

import (
	"cmp"
	"slices"
	"sync"

	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/proc"
)

// span has the start and the end of an operation, on the run's clock.
type span [2]int64

// tripsOf is the unit for the number of round trips that an operation waits for.
func tripsOf(op string) string { return "trips/" + op }

// trips records when data pass between the hosts of a measurement and the store.
type trips struct {
	clock proc.Clock
	half  int64 // half of a round trip, in nanoseconds
	ends  []func()

	mu     sync.Mutex
	passed []passage // in the order of their times
}

// passage is the arrival of data at a relay, which is a proxy that adds latency.
type passage struct {
	at  int64
	way inject.Direction
}

// watch starts to record when data arrive at the relays. Without relays, it records nothing.
func (in Input) watch() *trips {
	t := &trips{clock: in.Clock, half: int64(in.RTT / 2)}
	for _, relay := range in.Relays {
		t.ends = append(t.ends, relay.Observe(func(way inject.Direction) {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.passed = append(t.passed, passage{t.clock.Now(), way})
		}))
	}
	return t
}

func (t *trips) end() {
	for _, end := range t.ends {
		end()
	}
}

// The in method counts the round trips that an operation waited for during its span s. It looks for
// a request, a reply, the next request and so on, over all connections together. Data reach the
// other side half a round trip after a relay gets them. Data that a relay gets before that moment
// cannot be an answer, so requests to several nodes at once count as one round trip. Data of other
// operations add a round trip only if this operation is slow for another reason.
func (t *trips) in(s span) (n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, _ := slices.BinarySearchFunc(t.passed, s[0], func(p passage, at int64) int { return cmp.Compare(p.at, at) })
	next, there := inject.Requests, s[0]
	for _, p := range t.passed[i:] {
		if p.at+t.half > s[1] {
			break
		}
		if p.way != next || p.at < there {
			continue
		}
		there, next = p.at+t.half, inject.Replies
		if p.way == inject.Replies {
			n, next = n+1, inject.Requests
		}
	}
	return n
}

// note adds an operation's latencies to the cell, and the median number of its round trips.
func (t *trips) note(cell *results.Cell, op string, all []span) {
	var took, turns []int64
	for _, s := range all {
		took = append(took, max(0, s[1]-s[0]))
		if len(t.ends) > 0 {
			turns = append(turns, t.in(s))
		}
	}
	if len(all) > 0 {
		cell.Latencies[op] = took
	}
	if slices.Sort(turns); len(turns) > 0 {
		cell.Values[tripsOf(op)] = float64(results.Quantile(turns, 0.5))
	}
}
