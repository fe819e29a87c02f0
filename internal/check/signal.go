package check

import (
	"github.com/lockbench/lockbench/internal/results"
)

// margin is how long before the next grant the loser of the first learned of its
// loss. It is known only of a lease that was lost, of a process that could run.
func margin(first, next results.Hold, halts []results.Halt) (ns int64, known bool) {
	if first.DoneNs == 0 || first.ReleaseNs > 0 && first.ReleaseNs < first.DoneNs {
		return 0, false
	}
	for _, h := range halts {
		// It did not run when it should have been told, or shortly before.
		if h.Host == first.Host && h.From <= next.GrantedNs && (h.To == 0 || h.To >= next.GrantedNs-int64(slack)) {
			return 0, false
		}
	}
	return next.GrantedNs - first.DoneNs, true
}

// slack is how long a process that was given time again may need for what it
// had to do meanwhile.
const slack = rounding

// lag is how long after the end of a freeze a holder learned that its lease,
// which had run out, was lost; known is false when it was not frozen.
func lag(l results.Hold, halts []results.Halt) (ns int64, known bool) {
	for _, h := range halts {
		if h.Host == l.Host && h.Why == results.HaltFrozen && h.To > 0 && l.GrantedNs < h.From && l.DoneNs > h.From {
			return l.DoneNs - h.To, true
		}
	}
	return 0, false
}
