package report

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// takeoverOp is the operation whose distribution is a takeover's.
const takeoverOp = "takeover"

// ttlBand is when a lease ends that nobody ends early: it was renewed every
// third of the TTL, so that two thirds to the whole are left at a random
// moment.
func (r Report) ttlBand() *band {
	ttl := time.Duration(r.Manifest.Plan.TTLms) * time.Millisecond
	if ttl <= 0 {
		return nil
	}
	return &band{From: float64(ttl) * 2 / 3, Until: float64(ttl), Label: "what is left of the TTL"}
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
		v := view{Label: label(key), Y: axisShare, YTitle: "share of takeovers", Band: r.ttlBand()}
		subjects := r.subjectsOf(key)
		for _, s := range subjects {
			key.Backend = s
			l := r.line(s)
			l.Points, l.Shown = steps(r.Latencies[key]), true
			v.Lines = append(v.Lines, l)
		}
		v.Table = r.takeoverGrid(label(key), func(s string) *hdrhistogram.Histogram { key.Backend = s; return r.Latencies[key] }, subjects)
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

// takeoverGrid says of each backend where its takeovers lie against the band.
func (r Report) takeoverGrid(title string, of func(string) *hdrhistogram.Histogram, subjects []string) grid {
	b := r.ttlBand()
	g := grid{Title: title, Columns: []gridColumn{
		{"backend", false}, {"count", true}, {"shortest", true}, {"p50", true}, {"p99", true}, {"longest", true}, {"before band", true}, {"after", true},
	}}
	if b != nil {
		g.Note = fmt.Sprintf("the band, %s to %s, is %s", duration(b.From), duration(b.Until), b.Label)
	}
	for _, s := range subjects {
		h := of(s)
		sub := r.Manifest.Subject(s)
		row := gridRow{Kind: sub.Kind, Cells: []cell{word(name(sub)), numeric(grouped(float64(h.TotalCount())), float64(h.TotalCount()))}}
		for _, v := range []float64{float64(h.Min()), float64(h.ValueAtQuantile(50)), float64(h.ValueAtQuantile(99)), float64(h.Max())} {
			row.Cells = append(row.Cells, numeric(duration(v), v))
		}
		if !enough(h.TotalCount(), 0.99) {
			row.Cells[4] = cell{}
		}
		before, after := outside(h, b)
		row.Cells = append(row.Cells, numeric(fmt.Sprint(before), float64(before)), numeric(fmt.Sprint(after), float64(after)))
		g.Rows = append(g.Rows, row)
	}
	return g
}

// outside counts the takeovers before and after the band.
func outside(h *hdrhistogram.Histogram, b *band) (before, after int64) {
	if b == nil {
		return 0, 0
	}
	for _, bar := range h.Distribution() {
		switch {
		case float64(bar.To) < b.From:
			before += bar.Count
		case float64(bar.From) > b.Until:
			after += bar.Count
		}
	}
	return before, after
}
