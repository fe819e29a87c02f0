package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/results"
)

// A run differs from the rest when its longest operation took stallLeast and
// stallTimes as long as that of the median run.
const (
	stallLeast = 100 * time.Millisecond
	stallTimes = 10
)

// stallUnits are the operations that a server which stalls holds up. It
// may do so in any of them, and in the floor of its own.
var stallUnits = []struct{ unit, what string }{
	{"max-ns/acquire", "an acquire"}, {"max-ns/open-acquire", "an acquire of the open loop"}, {"max-ns/renew", "a renewal"},
	{"max-ns/release", "a release"}, {"max-ns/wait", "a wait"}, {"max-ns/call", "a call"},
}

// stall is one cell that stalled in a run.
type stall struct {
	results.Estimate // of the longest operations of its runs
	run              int
	row, cell        string
	unit, what       string
}

func (s stall) took() string { return bare(s.unit, s.Max) }

// stalls say in one line what stalled in one run and not in the others, the
// longest first; none when nothing did.
func (r Report) stalls() []string {
	all := r.stalled()
	if len(all) == 0 {
		return nil
	}
	slices.SortStableFunc(all, func(a, b stall) int { return cmp.Compare(b.Max, a.Max) })
	s := all[0]
	line := fmt.Sprintf("run %d of %d differs from the rest: %s of %s took %s (%s); the longest of the median run took %s",
		s.run, s.N, s.what, s.row, s.took(), s.cell, bare(s.unit, s.Center))
	var others []string
	for _, s := range all[1:] {
		others = append(others, fmt.Sprintf("%s of %s %s (%s, run %d)", s.what, s.row, s.took(), s.cell, s.run))
	}
	if len(others) > 0 {
		line += "; so do " + listed(others)
	}
	return []string{line}
}

func (r Report) stalled() []stall {
	var out []stall
	for _, t := range slices.Concat(r.Tables, r.Floors) {
		for _, row := range t.Rows {
			for _, of := range stallUnits {
				e := row.Figures[of.unit]
				if e.N < 3 || e.Max < float64(stallLeast) || e.Max < stallTimes*e.Center {
					continue
				}
				run := slices.Index(row.Runs[of.unit], e.Max) + 1
				out = append(out, stall{e, run, row.Name, t.Scenario + ", " + t.load(), of.unit, of.what})
			}
		}
	}
	return out
}
