package check

import (
	"cmp"
	"slices"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/results"
)

// checkOverlap sweeps over the grants of one name by the time at which they
// came back, and compares each with the one that lasts longest so far.
func checkOverlap(st *nameState, grants []results.Attempt, report func(claim.Rule, results.Attempt, results.Attempt)) {
	slices.SortFunc(grants, func(a, b results.Attempt) int { return cmp.Compare(a.Answered, b.Answered) })
	last, any := st.lastEnd, st.any
	for _, g := range grants {
		if any && g.Answered < heldUntil(last) && last.Answered < heldUntil(g) {
			report(claim.Overlap, last, g)
		}
		if !any || heldUntil(g) > heldUntil(last) {
			last, any = g, true
		}
	}
	st.lastEnd = last
}

// heldUntil is when the holder ceased to act as one. Of a lease whose end was
// not seen nothing is known but that it was held when it came back.
func heldUntil(a results.Attempt) int64 {
	if a.End == results.EndOpen {
		return a.Answered
	}
	return a.Ended
}
