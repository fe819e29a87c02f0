package report

import (
	"slices"
	"strings"

	"github.com/lockbench/lockbench/internal/results"
)

// highlight is a figure that stands for a scenario where there is room for
// one: in the summary, and in the choice of a backend.
type highlight struct {
	title string // of its column
	need  string // what somebody wants who looks at it
	unit  string
	more  bool // is better
	table Table
}

// highlights are those of the scenarios that were measured.
func (r Report) highlights() []highlight {
	var out []highlight
	add := func(title, need, unit string, more bool, t Table) {
		if slices.ContainsFunc(t.Rows, func(row Row) bool { return row.Figures[unit].N > 0 }) {
			load := ", " + t.load()
			if t.Scenario == takeoverScenario {
				load = "" // its modes say enough
			}
			out = append(out, highlight{title + load, need + load, unit, more, t})
		}
	}
	if ts := r.of(acquireScenario); len(ts) > 0 {
		few, many := ts[0], ts[len(ts)-1]
		add("acquire p50", "the shortest way to a free lock", "p50-ns/acquire", false, few)
		if len(ts) > 1 {
			add("acquire p99", "few slow acquires under load", "p99-ns/acquire", false, many)
		}
		if len(r.of(throughputScenario)) == 0 {
			add("cycles/s", "the most locks a second", "cycles/s", true, many)
		}
	}
	if ts := r.of(throughputScenario); len(ts) > 0 {
		// Of the cells with the fewest hosts, which all backends have, and with
		// the most keys, in which callers seldom meet.
		first := ts[0]
		ts = filter(ts, func(t Table) bool { return t.Hosts == first.Hosts && t.facet() == first.facet() })
		add("cycles/s", "the most locks a second", "cycles/s", true, ts[len(ts)-1])
	}
	if ts := r.of(contendScenario); len(ts) > 0 {
		last := ts[len(ts)-1]
		add("handoff p50", "a released lock soon in the next hands", "p50-ns/handoff", false, last)
		add("longest wait", "nobody waits long", "max-ns/wait", false, last)
	}
	for _, t := range r.of(takeoverScenario) {
		mode := ""
		if t.Mode != "" {
			mode = ", " + t.Mode
		}
		add("takeover p50"+mode, "a new leader soon after the old one's end"+mode, "p50-ns/takeover", false, t)
	}
	return out
}

// summary is one row for each subject: what a grant survives, what its tokens
// are worth, what the checks found, and the highlights.
func (r Report) summary() grid {
	columns := []column[results.Subject]{
		{gridColumn{"backend", false}, subject},
		textColumn("durability", func(s results.Subject) string { return s.Durability }),
		textColumn("fencing", func(s results.Subject) string { return s.Fencing }),
		textColumn("checked", func(s results.Subject) string { return r.judged(s.Name) }),
	}
	for _, h := range r.highlights() {
		if !strings.HasPrefix(h.unit, "p99-") && !strings.HasPrefix(h.unit, "max-") {
			columns = append(columns, numberColumn(h.title, h.cell))
		}
	}
	subjects := filter(r.Manifest.Subjects, func(s results.Subject) bool { return s.Kind != results.KindFloor })
	return tabulate(grid{Title: "summary (median, ± 95% interval)"}, columns, subjects)
}

func (h highlight) cell(s results.Subject) cell {
	i := slices.IndexFunc(h.table.Rows, func(r Row) bool { return r.Name == s.Name })
	if i < 0 {
		return cell{}
	}
	return figure(h.unit, true)(h.table.Rows[i])
}

// differ reports whether the runs support that a and b are not the same.
func (h highlight) differ(a, b Row) bool {
	return results.Compare(a.Runs[h.unit], b.Runs[h.unit]).Supported
}
