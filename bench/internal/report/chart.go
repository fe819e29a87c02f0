package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockbench/lockbench/bench/internal/results"
)

// axis is the kind of the values on an axis. It determines the scale and the labels of the axis.
type axis string

const (
	axisPercentile axis = "percentile" // x is -log10(1 - share)
	axisTime       axis = "time"       // nanoseconds, logarithmic
	axisLoad       axis = "load"       // callers, logarithmic
	axisCount      axis = "count"      // linear, from zero
	axisShare      axis = "share"      // 0 to 1
)

// chart is a chart of the page. The reader of the page chooses which view of the chart to see.
type chart struct {
	ID    string `json:"id"`
	X     axis   `json:"x"`
	Title string `json:"title"`
	Views []view `json:"views"`
	Note  string `json:"-"`
}

type view struct {
	Label  string `json:"label"`
	Y      axis   `json:"y"`
	YTitle string `json:"ytitle"`
	Lines  []line `json:"lines"`
	Band   *band  `json:"band,omitempty"`
	Table  grid   `json:"-"` // the figures of the lines, if the section has no other table with them
}

// band is a highlighted range of x values.
type band struct {
	From  float64 `json:"from"`
	Until float64 `json:"until"`
	Label string  `json:"label"`
}

// line is the line of one backend or baseline. A backend and the baselines on its server form a
// family: their lines have the same colour and marker, but different dashes.
type line struct {
	Name   string      `json:"name"`
	Family int         `json:"family"`
	Dash   int         `json:"dash"`   // 0 is solid
	Shown  bool        `json:"shown"`  // whether the line is shown before the reader chooses
	Points [][]float64 `json:"points"` // x, y, and the interval of y if there is one
}

// lines returns a line without points for each subject. Each backend has a family. A baseline gets
// the family of the backend that has the same reference. All baselines without such a backend share
// an additional family. Because twenty lines are unreadable, the page at first hides each baseline
// that no backend is compared with.
func lines(m results.Manifest) map[string]line {
	out, byReference := map[string]line{}, map[string]int{}
	plugins := filter(m.Subjects, func(s results.Subject) bool { return s.Kind == results.KindPlugin })
	for family, s := range plugins {
		out[s.Name] = line{Name: name(s), Family: family, Shown: true}
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
		shown := s.Kind != results.KindBaseline || s.Reference == s.Name
		out[s.Name] = line{Name: name(s), Family: family, Dash: dashes[family], Shown: shown}
	}
	return out
}

func (r Report) line(s results.Subject, points [][]float64) line {
	l := lines(r.Manifest)[s.Name]
	l.Points = points
	return l
}

func (r Report) charts(scenario string) []chart {
	all := append(r.distributions(scenario), r.loadChart(scenario))
	return slices.DeleteFunc(all, func(c chart) bool { return len(c.Views) == 0 })
}

// loadChart shows how the figures of a scenario change with the number of callers. The chart is
// empty if only one number of callers was measured.
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
	return joined(t.Mode, t.held())
}

// lineFacet returns the name of table t's curve in a load chart. Tables with the same facet (mode,
// locks and so on) share one curve. If one number of hosts was measured with several numbers of
// clients, these tables have a curve of their own. Its name includes the number of hosts.
func (t Table) lineFacet(ts []Table) string {
	several := slices.ContainsFunc(ts, func(o Table) bool {
		return o.Hosts == t.Hosts && o.Clients != t.Clients && o.facet() == t.facet()
	})
	if t.Hosts == 0 || !several {
		return t.facet()
	}
	return joined(plural(t.Hosts, "host"), t.facet())
}

// curve returns the view of one unit. It is empty if each subject has only one number of callers.
func (r Report) curve(unit, facet string, ts []Table) view {
	v := view{Label: joined(spelled(unit), facet), Y: axisCount, YTitle: spelled(unit)}
	if strings.Contains(unit, "-ns/") {
		v.Y = axisTime
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

func curvePoints(subject, unit string, ts []Table) [][]float64 {
	var out [][]float64
	for _, t := range ts {
		e := t.rowOf(subject).Figures[unit]
		if e.N == 0 {
			continue
		}
		p := []float64{float64(max(1, t.Hosts) * t.Clients), e.Center}
		if e.Bounded() {
			p = append(p, e.Lo, e.Hi)
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b []float64) int { return cmp.Compare(a[0], b[0]) })
	return out
}

// spelled returns the readable form of a unit, for example "acquire p50" for "p50-ns/acquire".
func spelled(unit string) string {
	if q, op, ok := strings.Cut(unit, "-ns/"); ok {
		return op + " " + q
	}
	return unit
}

// shares are the percentiles of a percentile plot, as fractions.
var shares = []float64{
	0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99, 0.993, 0.995, 0.997, 0.998, 0.999,
	0.9993, 0.9995, 0.9997, 0.9999,
}

// beyond is the number of samples above a percentile that a chart needs to show the percentile.
const beyond = 5

// enough reports whether n samples are enough to show the percentile share, which is a fraction.
func enough(n int64, share float64) bool {
	return share <= 0.5 || float64(n)*(1-share) >= beyond-1e-6
}

// distributions returns two charts of a scenario. The first shows the share of finished takeovers
// over time. The second shows the latencies of all other operations by percentile.
func (r Report) distributions(scenario string) []chart {
	takeovers := chart{
		ID: scenario + "-takeover", X: axisTime, Title: "Takeovers done after",
		Note: "Each step is a takeover. The hatched band is where the lease would have ended by itself: a takeover left of it was told of the death, one within it has waited for the TTL.",
	}
	latencies := chart{
		ID: scenario + "-latency", X: axisPercentile, Title: "Latency by percentile",
		Note: fmt.Sprintf("All runs together. A percentile is drawn where at least %d samples lie beyond it. Baselines other than the references can be switched on.", beyond),
	}
	for _, key := range r.cellsOf(scenario) {
		all, table := r.samplesOf(key), grid{Title: label(key)}
		to, v := &latencies, view{Label: label(key), Y: axisTime, YTitle: key.Op}
		points := percentiles
		if key.Op == takeoverOp {
			to, v = &takeovers, view{Label: label(key), Y: axisShare, YTitle: "share of takeovers", Band: r.ttlBand(key.Mode)}
			points, table.Note = steps, r.bandNote(key.Mode)
		}
		for _, s := range all {
			l := r.line(s.Subject, points(s.Histogram))
			l.Shown = l.Shown || key.Op == takeoverOp
			v.Lines = append(v.Lines, l)
		}
		v.Table = tabulate(table, samplesColumns, all)
		to.Views = append(to.Views, v)
	}
	return []chart{takeovers, latencies}
}

func percentiles(h *hdrhistogram.Histogram) [][]float64 {
	var out [][]float64
	for _, share := range shares {
		if enough(h.TotalCount(), share) {
			out = append(out, []float64{-math.Log10(1 - share), float64(h.ValueAtQuantile(100 * share))})
		}
	}
	return out
}

type samples struct {
	results.Subject
	*hdrhistogram.Histogram
}

func (r Report) samplesOf(key results.HistogramKey) []samples {
	var out []samples
	for _, s := range r.Manifest.Subjects {
		key.Backend = s.Name
		if h := r.Latencies[key]; h != nil && h.TotalCount() > 0 {
			out = append(out, samples{s, h})
		}
	}
	return out
}

var samplesColumns = []column[samples]{
	{gridColumn{"backend", false}, func(s samples) cell { return subject(s.Subject) }},
	numberColumn("samples", func(s samples) cell { return count(s.TotalCount()) }),
	numberColumn("min", func(s samples) cell { return took(s.Min()) }),
	percentile(0.5), percentile(0.9), percentile(0.99), percentile(0.999),
	numberColumn("max", func(s samples) cell { return took(s.Max()) }),
}

// percentile is a table column with one percentile. A cell of the column is empty if too few
// samples lie above the percentile.
func percentile(share float64) column[samples] {
	return numberColumn(fmt.Sprintf("p%g", 100*share), func(s samples) cell {
		if !enough(s.TotalCount(), share) {
			return cell{}
		}
		return took(s.ValueAtQuantile(100 * share))
	})
}

// cellsOf returns the keys of the latency distributions in a scenario, without the backend. The
// operations acquire, handoff and takeover come first, and all others follow by name.
func (r Report) cellsOf(scenario string) []results.HistogramKey {
	seen := map[results.HistogramKey]bool{}
	for key := range r.Latencies {
		if key.Scenario == scenario {
			key.Backend = ""
			seen[key] = true
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b results.HistogramKey) int {
		return cmp.Or(cmp.Compare(rank(firstOps, a.Op), rank(firstOps, b.Op)), cmp.Compare(a.Op, b.Op), byLoad(a.CellName, b.CellName))
	})
}

var firstOps = []string{"acquire", "handoff", takeoverOp}

func label(key results.HistogramKey) string {
	return joined(key.Op, key.Mode, Table{CellName: key.CellName}.load())
}

const takeoverOp = "takeover"

// ttlBand returns the range of times after a leader's death in which its lease can expire. If the
// takeovers of a mode wait for the TTL, the runs have recorded this range. For any other mode,
// ttlBand computes the range from the TTL. A lease is renewed every third of its TTL, so two thirds
// or more of the TTL are left when its holder dies.
func (r Report) ttlBand(mode string) *band {
	b := &band{Label: "what is left of the TTL"}
	for _, t := range r.of(takeoverScenario) {
		for _, row := range t.Rows {
			low, high := row.Figures["band-low-ns/takeover"], row.Figures["band-high-ns/takeover"]
			if t.Mode != mode || low.N == 0 || high.N == 0 {
				continue
			}
			if b.Until == 0 || low.Center < b.From {
				b.From = low.Center
			}
			b.Until = max(b.Until, high.Center)
		}
	}
	if ttl := time.Duration(r.Manifest.Plan.TTLms) * time.Millisecond; b.Until == 0 {
		b.From, b.Until = float64(ttl)*2/3, float64(ttl)
	}
	if b.Until <= 0 {
		return nil
	}
	return b
}

// steps returns a cumulative distribution: y is the share of the values that are at most x.
func steps(h *hdrhistogram.Histogram) [][]float64 {
	var out [][]float64
	done := int64(0)
	for _, bar := range h.Distribution() {
		if bar.Count > 0 {
			done += bar.Count
			out = append(out, []float64{float64(bar.To), float64(done) / float64(h.TotalCount())})
		}
	}
	return out
}

func (r Report) bandNote(mode string) string {
	b := r.ttlBand(mode)
	if b == nil {
		return ""
	}
	return fmt.Sprintf("A takeover that waits for the TTL takes %s to %s.", duration(b.From), duration(b.Until))
}
