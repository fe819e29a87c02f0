package faults

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/internal/check"
	"github.com/lockbench/lockbench/internal/results"
)

// History is what was seen of one schedule. Times are by proc.Now.
type History struct {
	Schedule Schedule
	Began    int64 // the callers were told to begin
	Stopped  int64 // the callers were told to stop
	Marks    []Mark
	Seen     []results.Seen // of each host
	Alive    []bool         // whether it was at the end, and ended in order
	Left     []string       // what was left over, and where
	Probes   []check.Probe
	// Gaps are when the search itself did not run, and nothing passed its proxies.
	Gaps []check.Span
	// RunQueue is how many threads each processor had to run on average.
	RunQueue float64
	// Waited is the longest that a thread of a server waited for a processor within
	// one look of the search at it.
	Waited time.Duration
	prefix string
}

// Mark is what became of one event.
type Mark struct {
	Event
	From   int64  // just before it was injected; 0: it was not
	Done   int64  // just after that
	To     int64  // just after it was healed
	Met    bool   // its trigger came
	Failed string // why it could not be injected

	moments map[Moment]moment
}

// moment is one that an event passes.
type moment struct {
	come <-chan struct{} // closed when it has passed it
	pass context.CancelFunc
}

func newMoments() map[Moment]moment {
	all := map[Moment]moment{}
	for _, one := range []Moment{Begun, Injected, Healed} {
		ctx, pass := context.WithCancel(context.Background())
		all[one] = moment{ctx.Done(), pass}
	}
	return all
}

// names is how many names a schedule has.
func (h *History) names() int {
	n := 0
	for _, g := range h.Schedule.Groups {
		n += g.Names
	}
	return n
}

// once is the number of the first name, and how many there are, of a group, by its
// number from 1; of 0, of all.
func (h *History) once(group int) (first, count int) {
	if group == 0 {
		return 0, h.names()
	}
	for _, g := range h.Schedule.Groups[:group-1] {
		first += g.Names
	}
	return first, h.Schedule.Groups[group-1].Names
}
