package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/lockbench/lockbench/bench/internal/results"
)

// operations are those whose round trips are told. The hand-over is that between
// hosts where a subject can be in several.
var operations = []struct{ title, scenario, unit string }{
	{"acquire", acquireScenario, "p50-ns/acquire"},
	{"renew", acquireScenario, "p50-ns/renew"},
	{"release", acquireScenario, "p50-ns/release"},
	{"hand-over", contendScenario, "p50-ns/handoff"},
	{"takeover", takeoverScenario, "p50-ns/takeover"},
}

// roundTrips has a row for each subject that was measured at several distances.
func (r Report) roundTrips() grid {
	columns := []column[results.Subject]{{gridColumn{"backend", false}, subject}}
	for _, op := range operations {
		columns = append(columns, numberColumn(op.title, func(s results.Subject) cell { return r.trips(op.scenario, op.unit, s) }))
	}
	says := func(s results.Subject) bool {
		return slices.ContainsFunc(columns[1:], func(c column[results.Subject]) bool { return c.cell(s).Text != "" })
	}
	subjects := filter(r.Manifest.Subjects, says)
	columns = slices.DeleteFunc(columns, func(c column[results.Subject]) bool {
		return !slices.ContainsFunc(subjects, func(s results.Subject) bool { return c.cell(s).Text != "" })
	})
	return tabulate(grid{
		Title: "round trips to the store",
		Note: "For how many an operation waits, one after the other: by how many times the added distance its p50 grows, that of the best run at each distance, " +
			"at the fewest callers. In brackets what rounding has left; ~ where that is much, or the runs are few.",
	}, columns, subjects)
}

// trips is by how many distances a latency of a subject grows, from the nearest store
// behind a relay to the farthest, or from the one without a relay. What does not ask
// the store once more for each step of the way shows in what rounding leaves.
func (r Report) trips(scenario, unit string, s results.Subject) cell {
	var loads []results.CellName // without a distance
	at, few := map[results.CellName][][2]float64{}, false
	for _, t := range r.of(scenario) {
		i := slices.IndexFunc(t.Rows, func(row Row) bool { return row.Name == s.Name && row.Figures[unit].N > 0 })
		ours := s.Kind == results.KindPlugin
		waits := scenario == takeoverScenario && (!ours || t.Mode != "kill-host") // for the TTL
		if i < 0 || ours && t.insideHost() || waits {
			continue
		}
		load := t.CellName
		load.RTT = 0
		if at[load] == nil {
			loads = append(loads, load)
		}
		e := t.Rows[i].Figures[unit]
		at[load], few = append(at[load], [2]float64{float64(t.RTT), e.Min}), few || e.N < fewestRuns
	}
	if len(loads) == 0 {
		return cell{}
	}
	points := at[slices.MinFunc(loads, byLoad)] // from near to far
	if len(points) > 2 && points[0][0] == 0 {
		points = points[1:]
	}
	if len(points) < 2 {
		return cell{}
	}
	near, far := points[0], points[len(points)-1]
	slope := (far[1] - near[1]) / (far[0] - near[0])
	whole := math.Round(slope)
	if few || whole < 0 || math.Abs(slope-whole) > 0.25 {
		return word(unsupported)
	}
	return numeric(fmt.Sprintf("%.0f (%+.2f)", whole, slope-whole), slope)
}
