package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/lockbench/lockbench/bench/internal/results"
)

// operations are the operations whose round trips are shown. A plugin's hand-overs count only with
// several hosts, because callers of one host pass a lock on without asking the store.
var operations = []struct{ title, scenario, name string }{
	{"acquire", acquireScenario, "acquire"},
	{"renew", acquireScenario, "renew"},
	{"release", acquireScenario, "release"},
	{"hand-over", contendScenario, "handoff"},
	{"takeover", takeoverScenario, "takeover"},
}

// tripsOf has the number of round trips to the store that an operation of a backend waits for, as
// counted by a relay. The slope is the growth of the latency divided by the growth of the RTT. It
// should equal the count. Each is nil if it is unknown.
type tripsOf struct {
	Backend   string   `json:"backend"`
	Operation string   `json:"operation"`
	Counted   *float64 `json:"counted"`
	Slope     *float64 `json:"slope"` // null with too few runs, or with only one RTT
}

// apart is the largest difference between count and slope that causes no warning.
const apart = 0.3

func (t tripsOf) cell() cell {
	text := func(v *float64, format string) string {
		if v == nil {
			return unsupported
		}
		return fmt.Sprintf(format, *v)
	}
	return cell{Text: fmt.Sprintf("%s (%s)", text(t.Counted, "%.0f"), text(t.Slope, "%.2f")), Value: t.Counted}
}

// allTrips returns the operations of all subjects for which the count or the slope is known.
func (r Report) allTrips() (all []tripsOf) {
	for _, s := range r.Manifest.Subjects {
		for _, op := range operations {
			t := tripsOf{Backend: s.Name, Operation: op.title}
			if t.Counted, t.Slope = r.trips(op.scenario, op.name, s); t.Counted != nil || t.Slope != nil {
				all = append(all, t)
			}
		}
	}
	return all
}

func (r Report) roundTrips() grid {
	all := r.allTrips()
	columns := []column[results.Subject]{{gridColumn{"backend", false}, subject}}
	for _, op := range operations {
		columns = append(columns, numberColumn(op.title, func(s results.Subject) cell {
			i := slices.IndexFunc(all, func(t tripsOf) bool { return t.Operation == op.title && t.Backend == s.Name })
			if i < 0 {
				return cell{}
			}
			return all[i].cell()
		}))
	}
	subjects := filter(r.Manifest.Subjects, func(s results.Subject) bool {
		return slices.ContainsFunc(all, func(t tripsOf) bool { return t.Backend == s.Name })
	})
	return tabulate(grid{
		Title: "round trips to the store",
		Note: "Round trips that an operation waits for, one after the other, at the fewest callers, as the relay counts them; of takeovers, where several names change hands, at most. " +
			"In brackets the check: by how many times the added distance the best p50 grows; ~ where the runs are few.",
	}, filled(columns, subjects), subjects)
}

func (r Report) tripWarnings() (out []string) {
	for _, t := range r.allTrips() {
		if t.Counted != nil && t.Slope != nil && math.Abs(*t.Counted-*t.Slope) > apart {
			out = append(out, fmt.Sprintf("round trips: %s of %s waits for %.0f as counted, for %.2f by its latency at several distances", t.Operation, t.Backend, *t.Counted, *t.Slope))
		}
	}
	return out
}

// trips returns how many round trips operation op of subject s waits for, under the smallest load.
// The count is from the highest RTT. The slope is the growth of p50 from the lowest to the highest
// RTT, divided by the growth of the RTT. The p50 at an RTT is the lowest p50 of all runs. If there
// are more than two RTTs, the slope leaves out RTT 0, at which no relay was used.
func (r Report) trips(scenario, op string, s results.Subject) (counted, slope *float64) {
	ours := s.Kind == results.KindPlugin
	p50 := func(t Table) results.Estimate { return t.rowOf(s.Name).Figures["p50-ns/"+op] }
	ts := filter(r.of(scenario), func(t Table) bool {
		waits := scenario == takeoverScenario && (!ours || t.Mode != "kill-host") // the takeover waits for the TTL, not for the store
		return p50(t).N > 0 && !(ours && t.insideHost()) && !waits
	})
	if len(ts) == 0 {
		return nil, nil
	}
	few := slices.ContainsFunc(ts, func(t Table) bool { return p50(t).N < fewestRuns })
	loads := groups(ts, func(t Table) results.CellName { t.RTT = 0; return t.CellName })
	var points [][2]float64 // from low to high RTT
	for _, t := range slices.MinFunc(loads, func(a, b group[results.CellName, Table]) int { return byLoad(a.key, b.key) }).all {
		points = append(points, [2]float64{float64(t.RTT), p50(t).Min})
		if e := t.rowOf(s.Name).Figures["trips/"+op]; e.N > 0 {
			counted = &e.Center
		}
	}
	if len(points) > 2 && points[0][0] == 0 {
		points = points[1:]
	}
	if len(points) > 1 && !few {
		near, far := points[0], points[len(points)-1]
		slope = finite((far[1] - near[1]) / (far[0] - near[0]))
	}
	return counted, slope
}
