package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// curveKey says which line a point of a curve is on, and in which facet: what
// was varied besides the number of callers.
type curveKey struct{ unit, facet, subject string }

// loadChart shows how the figures of a scenario change with the number of
// callers, where there were several numbers.
func (r Report) loadChart(scenario string) chart {
	c := chart{
		ID: scenario + "-load", X: axisLoad, Title: "Figures by number of callers",
		Note: "Medians over the runs with their 95 % intervals.",
	}
	ts := r.of(scenario)
	if scenario == contendScenario {
		c.Title = "Handoff by number of waiters"
	}
	if scenario == acquireScenario || scenario == throughputScenario {
		c.Title = "Latency and throughput against load"
	}
	if scenario != takeoverScenario && slices.ContainsFunc(ts, func(t Table) bool { return t.Hosts > 0 }) {
		c.Note += " Callers are those of all hosts together; without hosts they are in lockbench itself, else each host is a process with a plugin of its own."
	}
	points := map[curveKey][][]float64{}
	var facets, subjects []string
	for _, t := range ts {
		facet := t.lineFacet(ts)
		if !slices.Contains(facets, facet) {
			facets = append(facets, facet)
		}
		for _, row := range t.Rows {
			subjects = append(subjects, row.Name)
			for unit, e := range row.Figures {
				p := []float64{float64(max(1, t.Hosts) * t.Clients), e.Center}
				if e.Bounded() {
					p = append(p, e.Lo, e.Hi)
				}
				key := curveKey{unit, facet, row.Name}
				points[key] = append(points[key], p)
			}
		}
	}
	subjects = r.bySubject(subjects)
	for _, u := range shownUnits {
		for _, facet := range facets {
			if v := r.curve(u.unit, facet, subjects, points); len(v.Lines) > 0 {
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
func (r Report) curve(unit, facet string, subjects []string, points map[curveKey][][]float64) view {
	v := view{Label: spelled(unit), Y: axisCount, YTitle: spelled(unit)}
	if strings.Contains(unit, "-ns/") {
		v.Y = axisTime
	}
	if facet != "" {
		v.Label += ", " + facet
	}
	several := false
	for _, s := range subjects {
		l := r.line(s)
		l.Points = points[curveKey{unit, facet, s}]
		if len(l.Points) == 0 {
			continue
		}
		slices.SortFunc(l.Points, func(a, b []float64) int { return cmp.Compare(a[0], b[0]) })
		several = several || l.Points[0][0] != l.Points[len(l.Points)-1][0]
		v.Lines = append(v.Lines, l)
	}
	if !several {
		return view{}
	}
	v.Table = r.curveGrid(v, unit, subjects, facet, points)
	return v
}

// curveGrid has a column for each number of callers.
func (r Report) curveGrid(v view, unit string, subjects []string, facet string, points map[curveKey][][]float64) grid {
	g := grid{Title: v.Label, Columns: []gridColumn{{"backend", false}}}
	var loads []float64
	for _, l := range v.Lines {
		for _, p := range l.Points {
			if !slices.Contains(loads, p[0]) {
				loads = append(loads, p[0])
			}
		}
	}
	slices.Sort(loads)
	for _, n := range loads {
		g.Columns = append(g.Columns, gridColumn{fmt.Sprintf("%g callers", n), true})
	}
	for _, s := range subjects {
		list := points[curveKey{unit, facet, s}]
		sub := r.Manifest.Subject(s)
		row := gridRow{Kind: sub.Kind, Cells: []cell{word(name(sub))}}
		for _, n := range loads {
			i := slices.IndexFunc(list, func(p []float64) bool { return p[0] == n })
			if i < 0 {
				row.Cells = append(row.Cells, cell{})
				continue
			}
			row.Cells = append(row.Cells, numeric(bare(unit, list[i][1]), list[i][1]))
		}
		if len(list) > 0 {
			g.Rows = append(g.Rows, row)
		}
	}
	return g
}

// spelled is a unit for people: "acquire p50" for "p50-ns/acquire".
func spelled(unit string) string {
	if q, op, ok := strings.Cut(unit, "-ns/"); ok {
		return op + " " + q
	}
	return unit
}
