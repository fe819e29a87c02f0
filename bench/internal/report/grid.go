package report

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/bench/internal/results"
)

type cell struct {
	Text string
	// Value is the key by which a column of numbers is sorted. If Value is nil, Text is the key.
	Value *float64
	ours  bool // the cell names a backend that was measured through its plugin
}

// grid is a table that every format can show.
type grid struct {
	Title   string
	Note    string // text below the table; may be empty
	Columns []gridColumn
	Rows    []gridRow
	// Keys is the number of columns, from the first, that identify a row. 0 means 1.
	Keys int
}

type gridColumn struct {
	Title  string
	Number bool // the column has numbers, aligned right
}

type gridRow []cell

// Ours reports whether a row is about a backend that was measured through its plugin.
func (g gridRow) Ours() bool { return len(g) > 0 && g[0].ours }

// column is one column of a table. Its cell function makes the cell of this column for one row of
// the table. A row is a value of type T.
type column[T any] struct {
	gridColumn
	cell func(T) cell
}

func textColumn[T any](title string, text func(T) string) column[T] {
	return column[T]{gridColumn{title, false}, func(of T) cell { return word(text(of)) }}
}

func numberColumn[T any](title string, cell func(T) cell) column[T] {
	return column[T]{gridColumn{title, true}, cell}
}

func tabulate[T any](g grid, columns []column[T], rows []T) grid {
	for _, c := range columns {
		g.Columns = append(g.Columns, c.gridColumn)
	}
	for _, of := range rows {
		var row gridRow
		for _, c := range columns {
			row = append(row, c.cell(of))
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

func word(s string) cell { return cell{Text: s} }

func numeric(text string, v float64) cell { return cell{Text: text, Value: &v} }

func count(n int64) cell { return numeric(grouped(float64(n)), float64(n)) }

func took(ns int64) cell { return numeric(duration(float64(ns)), float64(ns)) }

func subject(s results.Subject) cell {
	return cell{Text: name(s), ours: s.Kind == results.KindPlugin}
}

func filter[T any](items []T, keep func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(items), func(item T) bool { return !keep(item) })
}

type group[K comparable, T any] struct {
	key K
	all []T
}

// groups returns one group for each key, in the order in which the keys first occur in items.
func groups[K comparable, T any](items []T, key func(T) K) []group[K, T] {
	var out []group[K, T]
	for _, item := range items {
		k := key(item)
		i := slices.IndexFunc(out, func(g group[K, T]) bool { return g.key == k })
		if i < 0 {
			i, out = len(out), append(out, group[K, T]{key: k})
		}
		out[i].all = append(out[i].all, item)
	}
	return out
}

// distinct returns each key of the items once, in the order in which the keys first occur.
func distinct[K comparable, T any](items []T, key func(T) K) []K {
	var out []K
	for _, g := range groups(items, key) {
		out = append(out, g.key)
	}
	return out
}

// compared lists the units for which a table has a ratio. The ratio divides a backend's figure by
// the figure of its reference, which is a baseline (a library without a plugin).
var compared = []struct{ unit, title string }{
	{"p50-ns/acquire", "acquire"}, {"cycles/s", "cycles"}, {"p50-ns/handoff", "hand-over"},
}

// columns returns the columns of table t, except columns in which all rows are empty.
func columns(t Table) []column[Row] {
	all := []column[Row]{{gridColumn{"backend", false}, func(r Row) cell { return subject(r.Subject) }}}
	listed := map[string]bool{}
	for _, u := range results.Units {
		if u.Title != "" {
			listed[u.Name] = true
			all = append(all, numberColumn(u.Title, figure(u.Name, u.Interval)))
		}
	}
	others := map[string]bool{}
	for _, r := range t.Rows {
		for unit := range r.Figures {
			if !listed[unit] && !results.Hidden(unit) {
				others[unit] = true
			}
		}
	}
	for _, unit := range slices.Sorted(maps.Keys(others)) {
		all = append(all, numberColumn(strings.Replace(unit, "-ns/", " ", 1), figure(unit, false)))
	}
	if ref := references(t); ref != "" {
		for _, u := range compared {
			all = append(all, numberColumn(u.title+" / "+ref, func(r Row) cell { return ratio(r.Ratios[u.unit]) }))
		}
	}
	return filled(all, t.Rows)
}

// filled returns the columns that have text in at least one row.
func filled[T any](columns []column[T], rows []T) []column[T] {
	return filter(columns, func(c column[T]) bool {
		return slices.ContainsFunc(rows, func(of T) bool { return c.cell(of).Text != "" })
	})
}

// severalReferences replaces the reference baseline in column titles if the backends of a table
// have different reference baselines. A note below the table names the reference of each backend.
const severalReferences = "ref."

func references(t Table) string {
	having := filter(t.Rows, func(r Row) bool { return r.Reference != "" })
	switch names := distinct(having, func(r Row) string { return r.Reference }); len(names) {
	case 0:
		return ""
	case 1:
		return names[0]
	}
	return severalReferences
}

func referenceNote(t Table) string {
	var parts []string
	for _, r := range t.Rows {
		if r.Kind == results.KindPlugin && r.Reference != "" {
			parts = append(parts, fmt.Sprintf("of %s %s", r.Name, r.Reference))
		}
	}
	return severalReferences + " is " + strings.Join(parts, ", ")
}

func name(s results.Subject) string {
	if s.Kind == results.KindPlugin {
		return s.Name + " (plugin)"
	}
	return s.Name
}

// figure returns a function that formats a row's median of a unit. If interval is set, the function
// adds the confidence interval. If the unit is a maximum, the function takes the longest time of
// all runs instead of a median, because a median would hide a stall of one run.
func figure(unit string, interval bool) func(Row) cell {
	return func(r Row) cell {
		e := r.Figures[unit]
		switch {
		case r.blank(unit):
			return cell{}
		case strings.HasSuffix(unit, "/open-acquire") && r.refused():
			return word("refused")
		case strings.HasPrefix(unit, "max-"):
			return numeric(bare(unit, e.Max), e.Max)
		case interval:
			return numeric(value(unit, e), e.Center)
		}
		return numeric(bare(unit, e.Center), e.Center)
	}
}

// blank reports whether a figure of the row is left out: it is missing, or it is a percentile such
// as p99 that only some of the runs have.
func (r Row) blank(unit string) bool {
	n := r.Figures[unit].N
	return n == 0 || tail(unit) && n < r.runs()
}

// blankNote says how many samples a percentile needs, if only some rows of the table have it.
func (t Table) blankNote() string {
	var parts []string
	for _, u := range results.Units {
		blank := filter(t.Rows, func(r Row) bool { return r.blank(u.Name) })
		if tail(u.Name) && u.Title != "" && 0 < len(blank) && len(blank) < len(t.Rows) {
			parts = append(parts, fmt.Sprintf("%s needs %s", strings.Replace(u.Name, "-ns/", " of ", 1), grouped(float64(results.Samples(u.Name)))))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "A blank figure had too few samples in some run: " + strings.Join(parts, ", ")
}

// tail reports whether a unit is a p99 or p99.9. Runs with few samples lack such units. A median
// over some of the runs must not be compared with a median over all runs.
func tail(unit string) bool { return strings.HasPrefix(unit, "p99") }

// runs returns the number of runs that measured this row.
func (r Row) runs() int {
	return most(maps.Values(r.Figures), func(e results.Estimate) int { return e.N })
}

// runs returns the largest number of runs that measured one row of this table. If a run was
// interrupted, this number can differ between tables.
func (t Table) runs() int { return most(slices.Values(t.Rows), Row.runs) }

func most[T any](items iter.Seq[T], number func(T) int) (n int) {
	for item := range items {
		n = max(n, number(item))
	}
	return n
}

// refusedUnit is the unit of a figure that is 1 if calls of a run were dropped or started late.
const refusedUnit = "open-refused"

// refused reports whether at least half of the runs fell behind the planned rate of the open loop.
// In that case, the figures of the open loop do not describe the backend.
func (r Row) refused() bool { return r.Figures[refusedUnit].Center > 0 }

func ratio(r *results.Ratio) cell {
	if r == nil || r.N == 0 {
		return cell{}
	}
	return numeric(times(*r), r.Center)
}

func (r Report) grid(t Table) grid {
	var notes []string
	cols := columns(t)
	if slices.ContainsFunc(cols, func(c column[Row]) bool { return strings.HasSuffix(c.Title, " / "+severalReferences) }) {
		notes = append(notes, referenceNote(t))
	}
	if t.Scenario == takeoverScenario {
		notes = append(notes, r.bandNote(t.Mode))
	}
	notes = append(notes, t.blankNote())
	if t.insideHost() {
		notes = append(notes, "A plugin's host hands a lock on inside itself without asking the store: this decides between no backends.")
	}
	return tabulate(grid{Title: title(t), Note: strings.Join(filter(notes, said), ". ")}, cols, t.Rows)
}

func (r Report) grids(ts []Table) []grid {
	var out []grid
	if ts[0].Scenario == ttlScenario {
		for _, g := range groups(ts, func(t Table) [2]int { return [2]int{int(t.RTT), t.Clients} }) {
			out = append(out, r.ttlTable(g.all))
		}
		return out
	}
	for _, t := range ts {
		out = append(out, r.grid(t))
	}
	return out
}

func title(t Table) string {
	return fmt.Sprintf("%s (median of %s, ± 95%% interval)", joined(t.Scenario, t.Mode, t.load()), plural(t.runs(), "run"))
}

// load describes the numbers of callers, hosts and locks, the hold time and the added RTT.
func (t Table) load() string {
	out := plural(t.Clients, "client")
	switch {
	case t.Scenario == takeoverScenario: // in this scenario, t.Clients is the number of lock names
		out = plural(t.Hosts, "host") + ", " + plural(t.Clients, "lock")
	case t.Hosts > 0 && t.Clients > 1:
		out = plural(t.Hosts, "host") + " of " + out
	case t.Hosts > 0:
		out = plural(t.Hosts, "host")
	}
	return joined(out, t.held())
}

func (t Table) held() string {
	var out []string
	if t.Keys > 0 {
		out = append(out, plural(t.Keys, "key"))
	}
	if t.Hold > 0 {
		out = append(out, fmt.Sprintf("held for %v", t.Hold))
	}
	if t.RTT > 0 {
		out = append(out, fmt.Sprintf("store %v away", t.RTT))
	}
	return joined(out...)
}
