package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockbench/lockbench/internal/results"
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
		all := r.samplesOf(key)
		for _, s := range all {
			v.Lines = append(v.Lines, r.line(s.Subject, percentiles(s.Histogram)))
		}
		v.Table = tabulate(grid{Title: label(key)}, []column[samples]{
			samplesSubject,
			numberColumn("samples", func(s samples) cell { return count(s.TotalCount()) }),
			percentile(0.5), percentile(0.9), percentile(0.99), percentile(0.999),
			numberColumn("max", func(s samples) cell { return took(s.Max()) }),
		}, all)
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

// samples are the latencies of one subject.
type samples struct {
	results.Subject
	*hdrhistogram.Histogram
}

// samplesOf are those of a distribution, of all subjects that have some.
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

// samplesSubject is the first column of tables of samples.
var samplesSubject = column[samples]{gridColumn{"backend", false}, func(s samples) cell { return subject(s.Subject) }}

// percentile is a column of those that have enough samples for it.
func percentile(share float64) column[samples] {
	return numberColumn(fmt.Sprintf("p%g", 100*share), func(s samples) cell {
		if !enough(s.TotalCount(), share) {
			return cell{}
		}
		return took(s.ValueAtQuantile(100 * share))
	})
}

// cellsOf are the distributions of a scenario, without a backend: each is a
// view. Acquire comes first, then as the alphabet has it.
func (r Report) cellsOf(scenario string) []results.HistogramKey {
	seen := map[results.HistogramKey]bool{}
	for key := range r.Latencies {
		if key.Scenario == scenario {
			key.Backend = ""
			seen[key] = true
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b results.HistogramKey) int {
		return cmp.Or(cmp.Compare(opRank(a.Op), opRank(b.Op)), cmp.Compare(a.Op, b.Op), byLoad(a.CellName, b.CellName))
	})
}

func opRank(op string) int {
	ranks := []string{"acquire", "handoff", "takeover"}
	if i := slices.Index(ranks, op); i >= 0 {
		return i
	}
	return len(ranks)
}

func label(key results.HistogramKey) string {
	out := key.Op
	if key.Mode != "" {
		out += ", " + key.Mode
	}
	return out + ", " + Table{CellName: key.CellName}.load()
}
