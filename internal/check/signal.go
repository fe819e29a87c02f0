package check

import (
	"github.com/lockbench/lockbench/internal/record"
)

// handover is a grant and the one that follows it.
type handover struct{ first, next record.Lease }

// belief is for how long the first holder still found its lease valid while
// the next one had it; not positive when it did not. It ends where the first
// one began to release.
func (s handover) belief() int64 { return s.first.ValidNs - s.next.GrantedNs }

// margin is how long before the next grant the loser learned of its loss. It
// is known only of a lease that was lost, of a process that could run.
func (s handover) margin(halts []record.Halt) (ns int64, known bool) {
	l := s.first
	if l.DoneNs == 0 || l.ReleaseNs > 0 && l.ReleaseNs < l.DoneNs {
		return 0, false
	}
	for _, h := range halts {
		// It did not run when it should have been told, or shortly before.
		if h.Host == l.Host && h.From <= s.next.GrantedNs && (h.To == 0 || h.To >= s.next.GrantedNs-int64(slack)) {
			return 0, false
		}
	}
	return s.next.GrantedNs - l.DoneNs, true
}

// slack is how long a process that was given time again may need for what it
// had to do meanwhile.
const slack = rounding

// lag is how long after the end of a freeze a holder learned that its lease,
// which had run out, was lost; known is false when it was not frozen.
func lag(l record.Lease, halts []record.Halt) (ns int64, known bool) {
	for _, h := range halts {
		if h.Host == l.Host && h.Why == record.HaltFrozen && h.To > 0 && l.GrantedNs < h.From && l.DoneNs > h.From {
			return l.DoneNs - h.To, true
		}
	}
	return 0, false
}
