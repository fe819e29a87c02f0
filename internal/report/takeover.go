package report

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

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

// takeoverChart shows for each mode which share of the takeovers was done
// after how long.
func (r Report) takeoverChart(scenario string) chart {
	c := chart{
		ID: scenario + "-takeover", X: axisTime, Title: "Takeovers done after",
		Note: "Each step is a takeover. The hatched band is where the lease would have ended by itself: a takeover left of it was told of the death, one within it has waited for the TTL.",
	}
	if scenario != takeoverScenario {
		return chart{}
	}
	for _, key := range r.cellsOf(scenario) {
		if key.Op != takeoverOp {
			continue
		}
		v := view{Label: label(key), Y: axisShare, YTitle: "share of takeovers", Band: r.ttlBand(key.Mode)}
		all := r.samplesOf(key)
		for _, s := range all {
			l := r.line(s.Subject, steps(s.Histogram))
			l.Shown = true
			v.Lines = append(v.Lines, l)
		}
		v.Table = tabulate(grid{Title: label(key), Note: r.bandNote(key.Mode)}, takeoverColumns(v.Band), all)
		c.Views = append(c.Views, v)
	}
	return c
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

// takeoverColumns say of each backend where its takeovers lie against the band.
func takeoverColumns(b *band) []column[samples] {
	number := func(n int64) cell { return numeric(fmt.Sprint(n), float64(n)) }
	return []column[samples]{
		samplesSubject,
		numberColumn("count", func(s samples) cell { return count(s.TotalCount()) }),
		numberColumn("shortest", func(s samples) cell { return took(s.Min()) }),
		percentile(0.5), percentile(0.99),
		numberColumn("longest", func(s samples) cell { return took(s.Max()) }),
		numberColumn("before band", func(s samples) cell { return number(outside(s.Histogram, b)[0]) }),
		numberColumn("after", func(s samples) cell { return number(outside(s.Histogram, b)[1]) }),
	}
}

// bandNote says where the band lies.
func (r Report) bandNote(mode string) string {
	b := r.ttlBand(mode)
	if b == nil {
		return ""
	}
	return fmt.Sprintf("A takeover that waits for the TTL takes %s to %s.", duration(b.From), duration(b.Until))
}

// outside counts the takeovers before the band, and those after it.
func outside(h *hdrhistogram.Histogram, b *band) (out [2]int64) {
	if b == nil {
		return out
	}
	for _, bar := range h.Distribution() {
		switch {
		case float64(bar.To) < b.From:
			out[0] += bar.Count
		case float64(bar.From) > b.Until:
			out[1] += bar.Count
		}
	}
	return out
}
