package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockbench/lockbench/internal/record"
)

// shares are the points of a percentile plot.
var shares = []float64{
	0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99, 0.993, 0.995, 0.997, 0.998, 0.999,
	0.9993, 0.9995, 0.9997, 0.9999,
}

// beyond is how many samples must lie above a percentile for it to be shown.
const beyond = 5

// enough reports whether n samples are worth a percentile.
func enough(n int64, share float64) bool {
	return share <= 0.5 || float64(n)*(1-share) >= beyond-1e-6
}

// latencyChart is the percentile plot of every operation of a scenario under
// every load.
func (r Report) latencyChart(scenario string) chart {
	c := chart{
		ID: scenario + "-latency", X: axisPercentile, Title: "Latency by percentile",
		Note: fmt.Sprintf("All runs together. A percentile is drawn where at least %d samples lie beyond it. Baselines other than the references are there to be switched on.", beyond),
	}
	for _, key := range r.cellsOf(scenario) {
		if key.Op == takeoverOp {
			continue // has a chart of its own
		}
		v := view{Label: label(key), Y: axisTime, YTitle: key.Op}
		subjects := r.subjectsOf(key)
		for _, s := range subjects {
			key.Backend = s
			l := r.line(s)
			l.Points = percentiles(r.Latencies[key])
			v.Lines = append(v.Lines, l)
		}
		v.Table = r.percentileGrid(key, subjects)
		c.Views = append(c.Views, v)
	}
	return c
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

func (r Report) percentileGrid(key record.HistogramKey, subjects []string) grid {
	g := grid{Title: label(key), Columns: []gridColumn{{"backend", false}, {"samples", true}}}
	shown := []float64{0.5, 0.9, 0.99, 0.999}
	for _, share := range shown {
		g.Columns = append(g.Columns, gridColumn{fmt.Sprintf("p%g", 100*share), true})
	}
	g.Columns = append(g.Columns, gridColumn{"max", true})
	for _, s := range subjects {
		key.Backend = s
		h := r.Latencies[key]
		sub := r.Manifest.Subject(s)
		row := gridRow{Kind: sub.Kind, Cells: []cell{word(name(sub)), numeric(grouped(float64(h.TotalCount())), float64(h.TotalCount()))}}
		for _, share := range shown {
			if !enough(h.TotalCount(), share) {
				row.Cells = append(row.Cells, cell{})
				continue
			}
			v := float64(h.ValueAtQuantile(100 * share))
			row.Cells = append(row.Cells, numeric(duration(v), v))
		}
		row.Cells = append(row.Cells, numeric(duration(float64(h.Max())), float64(h.Max())))
		g.Rows = append(g.Rows, row)
	}
	return g
}

// cellsOf are the distributions of a scenario, without a backend: each is a
// view. Acquire comes first, then as the alphabet has it.
func (r Report) cellsOf(scenario string) []record.HistogramKey {
	seen := map[record.HistogramKey]bool{}
	for key := range r.Latencies {
		if key.Scenario == scenario {
			key.Backend = ""
			seen[key] = true
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b record.HistogramKey) int {
		return cmp.Or(cmp.Compare(opRank(a.Op), opRank(b.Op)), cmp.Compare(a.Op, b.Op), cmp.Compare(a.Mode, b.Mode),
			cmp.Compare(a.Hosts, b.Hosts), cmp.Compare(b.Keys, a.Keys), cmp.Compare(a.Hold, b.Hold), cmp.Compare(a.Clients, b.Clients))
	})
}

func opRank(op string) int {
	ranks := []string{"acquire", "handoff", "takeover"}
	if i := slices.Index(ranks, op); i >= 0 {
		return i
	}
	return len(ranks)
}

// subjectsOf are those with samples of a distribution.
func (r Report) subjectsOf(key record.HistogramKey) []string {
	var names []string
	for k, h := range r.Latencies {
		own := k
		own.Backend = key.Backend
		if own == key && h.TotalCount() > 0 {
			names = append(names, k.Backend)
		}
	}
	return r.bySubject(names)
}

func label(key record.HistogramKey) string {
	out := key.Op
	if key.Mode != "" {
		out += ", " + key.Mode
	}
	return out + ", " + Table{Scenario: key.Scenario, Hosts: key.Hosts, Clients: key.Clients, Keys: key.Keys, Hold: key.Hold}.load()
}
