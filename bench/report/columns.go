package report

import (
	"fmt"
	"strings"

	"github.com/lockbench/lockbench/bench/record"
)

// column is one column of the shown tables.
type column struct {
	title  string
	number bool // aligned right
	text   func(Row) string
}

// columns chooses what is shown of a table: those in which some row has
// something to say.
func columns(t Table) []column {
	all := []column{
		{"backend", false, name},
		{"durability", false, func(r Row) string { return r.Durability }},
		{"fencing", false, func(r Row) string { return r.Fencing }},
		figure("acquire p50", "p50-ns/acquire", true),
		figure("p99", "p99-ns/acquire", false),
		{"open p50", true, open("p50-ns/open-acquire")},
		{"open p99", true, open("p99-ns/open-acquire")},
		{"open max", true, open("max-ns/open-acquire")},
		figure("renew p50", "p50-ns/renew", false),
		figure("release p50", "p50-ns/release", false),
		figure("cycles/s", "cycles/s", true),
		figure("handoff p50", "p50-ns/handoff", true),
		figure("p99", "p99-ns/handoff", false),
		figure("longest wait", "max-ns/wait", false),
		figure("Jain fairness", "jain", false),
		figure("grants/s", "grants/s", true),
		figure("takeover p50", "p50-ns/takeover", true),
		figure("longest", "max-ns/takeover", false),
	}
	for _, r := range t.Rows {
		if r.Reference != "" {
			all = append(all, ratio("acquire / "+r.Reference, "p50-ns/acquire"), ratio("cycles / "+r.Reference, "cycles/s"), ratio("handoff / "+r.Reference, "p50-ns/handoff"))
			break
		}
	}
	var used []column
	for _, c := range all {
		for _, r := range t.Rows {
			if c.text(r) != "" {
				used = append(used, c)
				break
			}
		}
	}
	return used
}

func name(r Row) string {
	if r.Kind == record.KindPlugin {
		return r.Name + " (plugin)"
	}
	return r.Name
}

// figure shows the median of a unit, with its interval where it is one of the
// figures that are compared.
func figure(title, unit string, interval bool) column {
	return column{title, true, func(r Row) string {
		e := r.Figures[unit]
		if e.N > 0 && !interval {
			return bare(unit, e.Center)
		}
		return Value(unit, e)
	}}
}

// open shows a figure of the open loop, unless the generator could not keep up
// in half of the runs.
func open(unit string) func(Row) string {
	return func(r Row) string {
		e := r.Figures[unit]
		switch {
		case e.N == 0:
			return ""
		case r.Figures["open-refused"].Center > 0:
			return "refused"
		}
		return bare(unit, e.Center)
	}
}

func ratio(title, unit string) column {
	return column{title, true, func(r Row) string { return Times(r.Ratios[unit]) }}
}

// title is the line above a table.
func (r Report) title(t Table) string {
	runs := 0 // as many as were done, which an interruption makes fewer
	for _, row := range t.Rows {
		for _, e := range row.Figures {
			runs = max(runs, e.N)
		}
	}
	what := []string{t.Scenario}
	if t.Mode != "" {
		what = append(what, t.Mode)
	}
	if t.Hosts > 0 {
		what = append(what, plural(t.Hosts, "host"))
	} else {
		what = append(what, plural(t.Clients, "client"))
	}
	if t.Keys > 0 {
		what = append(what, plural(t.Keys, "key"), fmt.Sprintf("held for %v", t.Hold))
	}
	return fmt.Sprintf("%s (median of %s, ± 95%% interval)", strings.Join(what, ", "), plural(runs, "run"))
}

// floors is the line below a table with what the cheapest calls cost at the
// same number of clients; "" without any.
func (t Table) floors() string {
	var parts []string
	for _, r := range t.Floors {
		parts = append(parts, fmt.Sprintf("%s %s", r.Name, Value("p50-ns/call", r.Figures["p50-ns/call"])))
	}
	if len(parts) == 0 {
		return ""
	}
	return "floors, p50 of a call: " + strings.Join(parts, "; ")
}
