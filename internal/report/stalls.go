package report

import (
	"fmt"
	"slices"
	"time"
)

// A run differs from the rest when its longest operation took stallLeast and
// stallTimes as long as that of the median run.
const (
	stallLeast = 100 * time.Millisecond
	stallTimes = 10
)

// stalls are the runs in which something stood still that did not in the others,
// one line each.
func (r Report) stalls() []string {
	var out []string
	for _, t := range r.Tables {
		for _, row := range t.Rows {
			for _, of := range []struct{ unit, what string }{{"max-ns/acquire", "an acquire"}, {"max-ns/wait", "a wait"}} {
				e := row.Figures[of.unit]
				if e.N < 3 || e.Max < float64(stallLeast) || e.Max < stallTimes*e.Center {
					continue
				}
				run := slices.Index(row.Runs[of.unit], e.Max) + 1
				out = append(out, fmt.Sprintf("run %d of %d differs from the rest: %s of %s took %s (%s, %s); the longest of the median run took %s",
					run, e.N, of.what, row.Name, bare(of.unit, e.Max), t.Scenario, t.load(), bare(of.unit, e.Center)))
			}
		}
	}
	return out
}
