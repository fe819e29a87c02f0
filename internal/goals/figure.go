package goals

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/stat"
)

// figure computes what a goal is about.
type figure func(folders []Folder) (stat.Estimate, error)

// ratio is a subject's value by a baseline's, run by run, of one folder in
// which both were interleaved. Where a run of one is lacking, those after it are
// paired with their neighbours.
func ratio(subject, baseline cell, unit string) figure {
	return func(folders []Folder) (stat.Estimate, error) {
		f, err := find(folders, subject, baseline)
		if err != nil {
			return stat.Estimate{}, err
		}
		own, err := values(f, subject, unit)
		if err != nil {
			return stat.Estimate{}, err
		}
		other, err := values(f, baseline, unit)
		if err != nil {
			return stat.Estimate{}, err
		}
		return stat.Compare(own, other).Estimate, nil
	}
}

// median is that of a value over the runs, divided by what the goal's unit is
// made of.
func median(c cell, unit string, per float64) figure {
	return func(folders []Folder) (stat.Estimate, error) {
		f, err := find(folders, c)
		if err != nil {
			return stat.Estimate{}, err
		}
		v, err := values(f, c, unit)
		return scaled(stat.Median(v), per), err
	}
}

// difference is the median over the runs of one value less another one.
func difference(c cell, unit, without string) figure {
	return paired(c, unit, without, func(v, w float64) float64 { return v - w })
}

// quotient is the median over the runs of one value by another one.
func quotient(c cell, unit, by string) figure {
	return paired(c, unit, by, func(v, w float64) float64 { return v / w })
}

func paired(c cell, first, second string, of func(v, w float64) float64) figure {
	return func(folders []Folder) (stat.Estimate, error) {
		f, err := find(folders, c)
		if err != nil {
			return stat.Estimate{}, err
		}
		v, err := values(f, c, first)
		if err != nil {
			return stat.Estimate{}, err
		}
		w, err := values(f, c, second)
		if err != nil {
			return stat.Estimate{}, err
		}
		for i := range v {
			v[i] = of(v[i], w[i])
		}
		return stat.Median(v), nil
	}
}

// worst is the highest value of all runs, with the lowest and the highest in
// place of the interval: of what must never happen the median says nothing.
func worst(c cell, unit string) figure {
	return func(folders []Folder) (stat.Estimate, error) {
		f, err := find(folders, c)
		if err != nil {
			return stat.Estimate{}, err
		}
		v, err := values(f, c, unit)
		if err != nil {
			return stat.Estimate{}, err
		}
		return stat.Estimate{N: len(v), Center: slices.Max(v), Lo: slices.Min(v), Hi: slices.Max(v)}, nil
	}
}

// p99 is that of an operation over all samples of all runs, with the p50 and
// the longest in place of the interval. The time that beyond allows is taken off.
func p99(c cell, op string, beyond func(Folder) (time.Duration, error)) figure {
	return func(folders []Folder) (stat.Estimate, error) {
		f, err := find(folders, c)
		if err != nil {
			return stat.Estimate{}, err
		}
		allowed, err := beyond(f)
		if err != nil {
			return stat.Estimate{}, err
		}
		for k, h := range f.histograms {
			if k.Op != op || !c.matches(k.Scenario, k.Backend, k.Mode, k.Hosts, k.Clients, k.Hold > 0) {
				continue
			}
			at := func(q float64) float64 { return float64(h.ValueAtQuantile(q) - int64(allowed)) }
			e := stat.Estimate{N: int(h.TotalCount()), Center: at(99), Lo: at(50), Hi: at(100)}
			return scaled(e, float64(time.Millisecond)), nil
		}
		return stat.Estimate{}, fmt.Errorf("%v has no %s", c, op)
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
