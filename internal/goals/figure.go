package goals

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/stat"
)

// figure computes what a goal is about, with a note of what there is to say
// beside it; "" for nothing.
type figure func(folders []Folder) (e stat.Estimate, note string, err error)

// series is a value of a cell, run by run.
type series struct {
	cell
	unit string
}

// of computes a figure from series of one folder.
func of(compute func(v ...[]float64) stat.Estimate, all ...series) figure {
	return func(folders []Folder) (stat.Estimate, string, error) {
		var cells []cell
		for _, s := range all {
			cells = append(cells, s.cell)
		}
		f, err := find(folders, slices.Compact(cells)...)
		v := make([][]float64, len(all))
		for i, s := range all {
			if err == nil {
				v[i], err = values(f, s.cell, s.unit)
			}
		}
		if err != nil {
			return stat.Estimate{}, "", err
		}
		return compute(v...), "", nil
	}
}

// ratio is a subject's value by a baseline's, run by run, of one folder in
// which both were interleaved. Where a run of one is lacking, those after it are
// paired with their neighbours.
func ratio(subject, baseline cell, unit string) figure {
	compare := func(v ...[]float64) stat.Estimate { return stat.Compare(v[0], v[1]).Estimate }
	return of(compare, series{subject, unit}, series{baseline, unit})
}

// median is that of a value over the runs, divided by what the goal's unit is
// made of.
func median(c cell, unit string, per float64) figure {
	return of(func(v ...[]float64) stat.Estimate { return scaled(stat.Median(v[0]), per) }, series{c, unit})
}

// paired is the median over the runs of what joins two values of each.
func paired(c cell, first, second string, join func(v, w float64) float64) figure {
	compute := func(v ...[]float64) stat.Estimate {
		joined := make([]float64, len(v[0]))
		for i := range joined {
			joined[i] = join(v[0][i], v[1][i])
		}
		return stat.Median(joined)
	}
	return of(compute, series{c, first}, series{c, second})
}

// worst is the highest value of all runs, with the lowest and the highest in
// place of the interval: of what must never happen the median says nothing.
func worst(c cell, unit string) figure {
	compute := func(v ...[]float64) stat.Estimate {
		return stat.Estimate{N: len(v[0]), Center: slices.Max(v[0]), Lo: slices.Min(v[0]), Hi: slices.Max(v[0])}
	}
	return of(compute, series{c, unit})
}

// p99 is that of an operation over all samples of all runs, with the p50 and
// the longest in place of the interval. The time that beyond allows is taken off.
func p99(c cell, op string, beyond func(Folder) (time.Duration, error)) figure {
	return func(folders []Folder) (stat.Estimate, string, error) {
		f, err := find(folders, c)
		if err != nil {
			return stat.Estimate{}, "", err
		}
		allowed, err := beyond(f)
		if err != nil {
			return stat.Estimate{}, "", err
		}
		for k, h := range f.histograms {
			if k.Op != op || !c.matches(k.Scenario, k.Backend, k.Mode, k.Hosts, k.Clients, k.Hold > 0) {
				continue
			}
			at := func(q float64) float64 { return float64(h.ValueAtQuantile(q) - int64(allowed)) }
			e := stat.Estimate{N: int(h.TotalCount()), Center: at(99), Lo: at(50), Hi: at(100)}
			return scaled(e, float64(time.Millisecond)), "", nil
		}
		return stat.Estimate{}, "", fmt.Errorf("%v has no %s", c, op)
	}
}

// nothing is allowed before the time counts.
func nothing(Folder) (time.Duration, error) { return 0, nil }

// roundTrip is what a takeover by expiry of the TTL may take for its question
// to the store and for the store's own step, by the band that was recorded: its
// upper end is that and the margin after the TTL.
func roundTrip(c cell, margin time.Duration) func(Folder) (time.Duration, error) {
	return func(f Folder) (time.Duration, error) {
		high, err := values(f, c, "band-high-ns/takeover")
		if err != nil {
			return 0, err
		}
		ttl := time.Duration(f.Manifest.Plan.TTLms) * time.Millisecond
		return time.Duration(stat.Median(high).Center) - ttl - margin, nil
	}
}

// values are a cell's in one unit, run by run.
func values(f Folder, c cell, unit string) ([]float64, error) {
	var out []float64
	for _, r := range f.lines(c) {
		v, ok := r.Values[unit]
		if !ok {
			return nil, fmt.Errorf("%v has no %s in run %d", c, unit, len(out)+1)
		}
		out = append(out, v)
	}
	return out, nil
}

func scaled(e stat.Estimate, per float64) stat.Estimate {
	e.Center, e.Lo, e.Hi = e.Center/per, e.Lo/per, e.Hi/per
	return e
}
