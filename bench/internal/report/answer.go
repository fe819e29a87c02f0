package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/bench/internal/results"
)

// hostScope is the scope of a backend whose locks exclude only callers of one host.
const hostScope = "host"

// answer is the report's answer to the question which backend to use. For each need, such as
// throughput, it names the best backends, or says that the figures show no difference.
type answer struct {
	Choices []choice
	Note    string // says which subjects are no candidates, and how to read the choices
	Drawing drawing
}

func (r Report) answer() answer {
	return answer{Choices: r.choices(), Note: r.choiceNote(), Drawing: r.drawing()}
}

// choice is the answer for one need of a user, for example the lowest latency.
type choice struct {
	Need string `json:"need"`
	// Take has the best backend, and the backends that the figures do not show to be worse. It is
	// empty if none of several backends is shown to be worse. In scenario ttl, Take has a TTL.
	Take     []string `json:"take,omitempty"`
	Measured string   `json:"measured,omitempty"` // the figures of the best backends
	Others   string   `json:"others,omitempty"`   // how much worse the others are, or why there is no choice
	// Libraries names the baselines (libraries without a plugin) that are faster than the best
	// backend, and the features that they lack. It also names slower reference baselines.
	Libraries string `json:"libraries,omitempty"`
}

// choices returns the recommendations of this run. A candidate is a backend that broke no rule and
// whose locks exclude callers of other hosts. A second build (flag --vs) is no candidate. A choice
// by a figure needs at least two candidates, or a baseline to name in Libraries.
func (r Report) choices() []choice {
	var out []choice
	for _, h := range r.highlights() {
		if c, ok := r.choose(h); ok {
			out = append(out, c)
		}
	}
	return slices.Concat(out, r.survivors(), r.ttlChoices())
}

// survivors names the candidates whose server has settings that make grants survive its crash.
func (r Report) survivors() []choice {
	all := filter(r.Manifest.Subjects, func(s results.Subject) bool { return r.candidate(s) && s.SurvivesCrash != nil })
	if len(all) < 2 {
		return nil
	}
	c := choice{Need: "grants that survive a server's crash"}
	var measured, others []string
	for _, s := range all {
		said := fmt.Sprintf("%s: %s", s.Name, s.Durability)
		switch {
		case *s.SurvivesCrash:
			c.Take, measured = append(c.Take, s.Name), append(measured, said)
			continue
		case s.Fencing == "quorum":
			said += ", though most of its servers outlive the crash of one"
		}
		others = append(others, said)
	}
	c.Measured, c.Others = strings.Join(measured, "; "), strings.Join(others, "; ")
	switch {
	case len(c.Take) == 0:
		c.Measured = "none, by the settings that were read"
	case len(others) > 0:
		c.Others = "not by the settings that were read: " + c.Others
	}
	return []choice{c}
}

func (r Report) candidate(s results.Subject) bool { return mayTake(s) && !r.broken(s.Name) }

// mayTake reports whether the report may recommend subject s, provided that s broke no rule.
func mayTake(s results.Subject) bool {
	return s.Kind == results.KindPlugin && s.BuildOf == "" && s.Scope != hostScope
}

func (r Report) choose(h highlight) (choice, bool) {
	candidates := filter(h.table.Rows, func(row Row) bool { return r.candidate(row.Subject) })
	rows := filter(candidates, func(row Row) bool { return !row.blank(h.unit) })
	if len(rows) == 0 {
		return choice{}, false
	}
	slices.SortStableFunc(rows, h.byFigure)
	best := rows[0]
	c := choice{Need: h.need}
	var measured, others []string
	for i, row := range rows {
		if i == 0 || !h.differ(best, row) {
			c.Take = append(c.Take, row.Name)
			measured = append(measured, promised(row, rows)+" "+value(h.unit, row.Figures[h.unit]))
			continue
		}
		others = append(others, promised(row, rows)+" "+h.compared(row, best))
	}
	if len(c.Take) == len(rows) && len(rows) > 1 {
		c.Take, others = nil, []string{r.undecided()}
	}
	for _, row := range candidates {
		if row.blank(h.unit) {
			others = append(others, row.Name+" has too few samples for it")
		}
	}
	c.Measured, c.Others, c.Libraries = strings.Join(measured, ", "), strings.Join(others, ", "), h.libraries(best)
	return c, len(candidates) > 1 || c.Libraries != ""
}

func (h highlight) byFigure(a, b Row) int {
	d := cmp.Compare(a.Figures[h.unit].Center, b.Figures[h.unit].Center)
	if h.more {
		return -d
	}
	return d
}

// compared says how much slower or faster the first row is than the second, as in "2.0x slower".
func (h highlight) compared(row, than Row) string {
	times, what := row.Figures[h.unit].Center/than.Figures[h.unit].Center, "slower"
	if h.more {
		times = 1 / times
	}
	if times < 1 {
		times, what = 1/times, "faster"
	}
	return fmt.Sprintf("%sx %s", significant(times, 2), what)
}

// libraries compares baselines with the best backend, but omits differences that may be chance.
func (h highlight) libraries(best Row) string {
	var out []string
	rows := filter(h.table.Rows, func(row Row) bool {
		return row.Kind == results.KindBaseline && !row.blank(h.unit) && h.differ(best, row) &&
			(row.Reference == row.Name || h.byFigure(row, best) < 0)
	})
	slices.SortStableFunc(rows, h.byFigure)
	for _, row := range rows {
		said := row.Name + " " + h.compared(row, best)
		if len(row.Without) > 0 && h.byFigure(row, best) < 0 {
			said += ", without " + series(row.Without, " or ")
		}
		out = append(out, said)
	}
	return strings.Join(out, "; ")
}

func (r Report) undecided() string {
	if r.runs() < fewestRuns {
		return "too few runs to show a difference"
	}
	return "these runs show no difference"
}

// promised returns the name of the row's backend. If the rows differ in durability, promised adds
// the durability of this row.
func promised(row Row, all []Row) string {
	if slices.ContainsFunc(all, func(other Row) bool { return other.Durability != row.Durability }) {
		return fmt.Sprintf("%s (%s)", row.Name, row.shortDurability())
	}
	return row.Name
}

// fewestRuns is the smallest number of runs of each backend that can show a difference. With three
// runs of each backend, the U test (Mann and Whitney) has no p-value below 0.1.
const fewestRuns = 4

func (r Report) runs() int { return most(slices.Values(r.Tables), Table.runs) }

func (r Report) choiceNote() string {
	var parts []string
	compared := len(r.highlights()) > 0
	if compared {
		parts = append(parts, "Backends that are named together could not be told apart by these runs.")
	}
	if n := r.runs(); compared && n < fewestRuns {
		parts = append(parts, fmt.Sprintf("%s are too few to show any difference: use --runs %d or more.", plural(n, "run"), fewestRuns))
	}
	for _, s := range r.Manifest.Subjects {
		switch {
		case s.Kind != results.KindPlugin:
		case r.broken(s.Name):
			parts = append(parts, fmt.Sprintf("%s is no candidate: %s.", s.Name, r.judged(s.Name)))
		case s.Scope == hostScope:
			parts = append(parts, fmt.Sprintf("%s is no candidate: other hosts do not see its locks.", s.Name))
		}
	}
	if compared {
		parts = append(parts, "Compare speeds within one class of durability.")
	}
	return strings.Join(filter(append(parts, r.power()), said), " ")
}

func (a answer) Table() grid {
	columns := []column[choice]{
		textColumn("what counts most", func(c choice) string { return c.Need }),
		textColumn("take", func(c choice) string { return strings.Join(c.Take, ", ") }),
		textColumn("measured", func(c choice) string { return c.Measured }),
		textColumn("the others", func(c choice) string { return c.Others }),
	}
	if slices.ContainsFunc(a.Choices, func(c choice) bool { return c.Libraries != "" }) {
		columns = append(columns, textColumn("libraries", func(c choice) string { return c.Libraries }))
	}
	return tabulate(grid{Title: "which one should I use", Note: a.Note}, columns, a.Choices)
}

// highlight is a figure that the report uses to recommend a backend for one need of the user.
type highlight struct {
	title string // title of its column
	need  string // the need of the user, such as "throughput"
	unit  string
	more  bool // a higher value is better
	table Table
}

func (r Report) highlights() []highlight {
	var out []highlight
	add := func(title, need, unit string, more bool, t Table) {
		if slices.ContainsFunc(t.Rows, func(row Row) bool { return row.Figures[unit].N > 0 }) {
			load := t.load()
			if t.Scenario == takeoverScenario {
				load = "" // the modes describe the load well enough
			}
			out = append(out, highlight{joined(title, load), joined(need, load), unit, more, t})
		}
	}
	if ts := near(r.of(acquireScenario)); len(ts) > 0 {
		few, many := ts[0], ts[len(ts)-1]
		add("acquire p50", "lowest uncontended latency", "p50-ns/acquire", false, few)
		if len(ts) > 1 {
			add("acquire p99", "p99 under load", "p99-ns/acquire", false, many)
		}
		if len(r.of(throughputScenario)) == 0 {
			add("cycles/s", "throughput", "cycles/s", true, many)
		}
	}
	if ts := near(r.of(throughputScenario)); len(ts) > 0 {
		// Choose tables with the fewest hosts, because all backends have such tables. Of these, choose
		// those with the most locks, where callers seldom wait. Of these, choose the most callers.
		first := ts[0]
		ts = filter(ts, func(t Table) bool { return t.Hosts == first.Hosts && t.facet() == first.facet() })
		add("cycles/s", "throughput", "cycles/s", true, ts[len(ts)-1])
	}
	// Of the tables with the most hosts, choose the first, which has the fewest callers in each host,
	// because callers of one host often pass a lock to each other.
	if ts := filter(near(r.of(contendScenario)), func(t Table) bool { return t.Hosts > 0 }); len(ts) > 0 {
		t := slices.MaxFunc(ts, func(a, b Table) int { return cmp.Compare(a.Hosts, b.Hosts) })
		add("hand-over p50", "hand-over of one lock that all want", "p50-ns/handoff", false, t)
		add("longest wait", "longest wait for it (median of runs)", "max-ns/wait", false, t)
	}
	for _, t := range near(r.of(takeoverScenario)) {
		add(joined("takeover p50", t.Mode), joined("failover time", t.Mode), "p50-ns/takeover", false, t)
	}
	return out
}

// near returns the tables that were measured with the shortest RTT between hosts and store.
func near(ts []Table) []Table {
	return filter(ts, func(t Table) bool {
		return !slices.ContainsFunc(ts, func(other Table) bool { return other.RTT < t.RTT })
	})
}

func (r Report) summary() grid {
	columns := []column[results.Subject]{
		{gridColumn{"backend", false}, subject},
		textColumn("durability", func(s results.Subject) string { return s.Durability }),
		textColumn("fencing", func(s results.Subject) string { return s.Fencing }),
		textColumn("checked", func(s results.Subject) string { return r.judged(s.Name) }),
	}
	for _, h := range r.highlights() {
		if !strings.HasPrefix(h.unit, "p99-") && !strings.HasPrefix(h.unit, "max-") {
			columns = append(columns, numberColumn(h.title, func(s results.Subject) cell {
				return figure(h.unit, true)(h.table.rowOf(s.Name))
			}))
		}
	}
	subjects := filter(r.Manifest.Subjects, func(s results.Subject) bool { return s.Kind != results.KindFloor })
	return tabulate(grid{Title: "summary (median, ± 95% interval)"}, columns, subjects)
}

// differ reports whether a statistical test supports a difference between the rows a and b.
func (h highlight) differ(a, b Row) bool {
	return results.Compare(a.Runs[h.unit], b.Runs[h.unit]).Supported
}
