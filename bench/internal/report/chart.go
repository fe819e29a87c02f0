package report

import (
	"cmp"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/bench/internal/results"
)

// axis says what an axis shows, which decides its scale and labels.
type axis string

const (
	axisPercentile axis = "percentile" // x is -log10(1 - share)
	axisTime       axis = "time"       // nanoseconds, logarithmic
	axisLoad       axis = "load"       // callers, logarithmic
	axisCount      axis = "count"      // linear, from zero
	axisShare      axis = "share"      // 0 to 1
)

// chart is a figure of the page. Its views are looked at one at a time.
type chart struct {
	ID    string `json:"id"`
	X     axis   `json:"x"`
	Title string `json:"title"`
	Views []view `json:"views"`
	Note  string `json:"-"`
}

// view is one set of lines.
type view struct {
	Label  string `json:"label"`
	Y      axis   `json:"y"`
	YTitle string `json:"ytitle"`
	Lines  []line `json:"lines"`
	Band   *band  `json:"band,omitempty"`
	Table  grid   `json:"-"` // says the same, where no table of the section does
}

// band is a part of the x axis that is pointed out.
type band struct {
	From  float64 `json:"from"`
	Until float64 `json:"until"`
	Label string  `json:"label"`
}

// line is one subject's. A family, which has its colour and marker, is a
// backend with the baselines on its server; they differ in their dashes.
type line struct {
	Name   string      `json:"name"`
	Family int         `json:"family"`
	Dash   int         `json:"dash"`   // 0 is solid
	Shown  bool        `json:"shown"`  // before the reader chooses
	Points [][]float64 `json:"points"` // x, y, and where there is one the interval of y
}

// style finds the family and dash of a subject.
type style struct{ family, dash int }

// styles numbers the backends in the order of the manifest, and the baselines
// of each. What belongs to none is a family of its own.
func styles(m results.Manifest) map[string]style {
	out, byReference := map[string]style{}, map[string]int{}
	plugins := filter(m.Subjects, func(s results.Subject) bool { return s.Kind == results.KindPlugin })
	for family, s := range plugins {
		out[s.Name] = style{family: family}
		if s.Reference != "" {
			byReference[s.Reference] = family
		}
	}
	dashes := map[int]int{}
	for _, s := range m.Subjects {
		if s.Kind == results.KindPlugin {
			continue
		}
		family, ok := byReference[s.Reference]
		if !ok {
			family = len(plugins)
		}
		dashes[family]++
		out[s.Name] = style{family, dashes[family]}
	}
	return out
}

// line is that of a subject. Of the baselines only the references are shown at
// first: twenty lines say nothing.
func (r Report) line(s results.Subject, points [][]float64) line {
	st := styles(r.Manifest)[s.Name]
	return line{
		Name: name(s), Family: st.family, Dash: st.dash, Points: points,
		Shown: s.Kind != results.KindBaseline || s.Reference == s.Name,
	}
}

// charts are those of one scenario.
func (r Report) charts(scenario string) []chart {
	all := append(r.distributions(scenario), r.loadChart(scenario))
	return slices.DeleteFunc(all, func(c chart) bool { return len(c.Views) == 0 })
}

// loadChart shows how the figures of a scenario change with the number of
// callers, where there were several numbers.
func (r Report) loadChart(scenario string) chart {
	c := chart{
		ID: scenario + "-load", X: axisLoad, Title: "Figures by number of callers",
		Note: "Medians over the runs with their 95 % intervals, which the tables below have too.",
	}
	ts := r.of(scenario)
	if scenario != takeoverScenario && slices.ContainsFunc(ts, func(t Table) bool { return t.Hosts > 0 }) {
		c.Note += " Callers are those of all hosts together; without hosts they are in lockbench itself, else each host is a process with a plugin of its own."
	}
	facets := groups(ts, func(t Table) string { return t.lineFacet(ts) })
	for _, u := range filter(results.Units, func(u results.Unit) bool { return u.Title != "" }) {
		for _, facet := range facets {
			if v := r.curve(u.Name, facet.key, facet.all); len(v.Lines) > 0 {
				c.Views = append(c.Views, v)
			}
		}
	}
	return c
}

func (t Table) facet() string {
	var parts []string
	if t.Mode != "" {
		parts = append(parts, t.Mode)
	}
	return strings.Join(append(parts, t.held()...), ", ")
}

// lineFacet is the facet of a table, with its hosts when there are others with as
// many hosts and other numbers of clients: then each number of hosts is a curve
// of its own, else all are points of one.
func (t Table) lineFacet(ts []Table) string {
	several := slices.ContainsFunc(ts, func(o Table) bool {
		return o.Hosts == t.Hosts && o.Clients != t.Clients && o.facet() == t.facet()
	})
	switch {
	case t.Hosts == 0 || !several:
		return t.facet()
	case t.facet() == "":
		return plural(t.Hosts, "host")
	}
	return plural(t.Hosts, "host") + ", " + t.facet()
}

// curve is the view of one unit; without lines when no subject has two points.
func (r Report) curve(unit, facet string, ts []Table) view {
	v := view{Label: spelled(unit), Y: axisCount, YTitle: spelled(unit)}
	if strings.Contains(unit, "-ns/") {
		v.Y = axisTime
	}
	if facet != "" {
		v.Label += ", " + facet
	}
	several := false
	for _, s := range r.Manifest.Subjects {
		points := curvePoints(s.Name, unit, ts)
		if len(points) == 0 {
			continue
		}
		several = several || points[0][0] != points[len(points)-1][0]
		v.Lines = append(v.Lines, r.line(s, points))
	}
	if !several {
		return view{}
	}
	return v
}

// curvePoints are a subject's figures of one unit, by number of callers.
func curvePoints(subject, unit string, ts []Table) [][]float64 {
	var out [][]float64
	for _, t := range ts {
		for _, row := range t.Rows {
			e, ok := row.Figures[unit]
			if !ok || row.Name != subject {
				continue
			}
			p := []float64{float64(max(1, t.Hosts) * t.Clients), e.Center}
			if e.Bounded() {
				p = append(p, e.Lo, e.Hi)
			}
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b []float64) int { return cmp.Compare(a[0], b[0]) })
	return out
}

// spelled is a unit for people: "acquire p50" for "p50-ns/acquire".
func spelled(unit string) string {
	if q, op, ok := strings.Cut(unit, "-ns/"); ok {
		return op + " " + q
	}
	return unit
}
