package report

import (
	"slices"

	"github.com/lockbench/lockbench/internal/results"
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

// view is one set of lines with the table that says the same.
type view struct {
	Label  string `json:"label"`
	Y      axis   `json:"y"`
	YTitle string `json:"ytitle"`
	Lines  []line `json:"lines"`
	Band   *band  `json:"band,omitempty"`
	Table  grid   `json:"-"`
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

	subject cell // in tables
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
		Name: name(s), Family: st.family, Dash: st.dash, Points: points, subject: subject(s),
		Shown: s.Kind == results.KindPlugin || s.Reference == s.Name,
	}
}

// charts are those of one scenario.
func (r Report) charts(scenario string) []chart {
	all := []chart{r.takeoverChart(scenario), r.latencyChart(scenario), r.loadChart(scenario)}
	return slices.DeleteFunc(all, func(c chart) bool { return len(c.Views) == 0 })
}
