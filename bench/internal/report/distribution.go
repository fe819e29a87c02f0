package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockbench/lockbench/bench/internal/results"
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

// distributions are the percentile plot of every operation of a scenario under every
// load, and for takeovers which share of them was done after how long.
func (r Report) distributions(scenario string) []chart {
	takeovers := chart{
		ID: scenario + "-takeover", X: axisTime, Title: "Takeovers done after",
		Note: "Each step is a takeover. The hatched band is where the lease would have ended by itself: a takeover left of it was told of the death, one within it has waited for the TTL.",
	}
	latencies := chart{
		ID: scenario + "-latency", X: axisPercentile, Title: "Latency by percentile",
		Note: fmt.Sprintf("All runs together. A percentile is drawn where at least %d samples lie beyond it. Baselines other than the references are there to be switched on.", beyond),
	}
	for _, key := range r.cellsOf(scenario) {
		if all := r.samplesOf(key); key.Op == takeoverOp {
			takeovers.Views = append(takeovers.Views, r.takeoverView(key, all))
		} else {
			latencies.Views = append(latencies.Views, r.latencyView(key, all))
		}
	}
	return []chart{takeovers, latencies}
}

func (r Report) latencyView(key results.HistogramKey, all []samples) view {
	v := view{Label: label(key), Y: axisTime, YTitle: key.Op}
	for _, s := range all {
		v.Lines = append(v.Lines, r.line(s.Subject, percentiles(s.Histogram)))
	}
	v.Table = tabulate(grid{Title: label(key)}, samplesColumns, all)
	return v
}

func (r Report) takeoverView(key results.HistogramKey, all []samples) view {
	v := view{Label: label(key), Y: axisShare, YTitle: "share of takeovers", Band: r.ttlBand(key.Mode)}
	for _, s := range all {
		l := r.line(s.Subject, steps(s.Histogram))
		l.Shown = true
		v.Lines = append(v.Lines, l)
	}
	v.Table = tabulate(grid{Title: label(key), Note: r.bandNote(key.Mode)}, samplesColumns, all)
	return v
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

// samplesColumns are those of tables of samples.
var samplesColumns = []column[samples]{
	{gridColumn{"backend", false}, func(s samples) cell { return subject(s.Subject) }},
	numberColumn("samples", func(s samples) cell { return count(s.TotalCount()) }),
	numberColumn("min", func(s samples) cell { return took(s.Min()) }),
	percentile(0.5), percentile(0.9), percentile(0.99), percentile(0.999),
	numberColumn("max", func(s samples) cell { return took(s.Max()) }),
}

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

// takeoverOp is the operation whose distribution is a takeover's.
const takeoverOp = "takeover"

// ttlBand is when a takeover is due that waits for the lease's end. The cells
// say when that is; those that do not wait have none, and then it is what the
// plan's TTL leaves: renewed every third of it, two thirds to the whole.
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

// steps is the cumulative distribution: x is a value, y the share up to it.
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

// bandNote says where the band lies.
func (r Report) bandNote(mode string) string {
	b := r.ttlBand(mode)
	if b == nil {
		return ""
	}
	return fmt.Sprintf("A takeover that waits for the TTL takes %s to %s.", duration(b.From), duration(b.Until))
}
