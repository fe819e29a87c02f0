package results

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// Held is what a folder says of a bound.
type Held struct {
	Gate Gate
	// Row is that of the plugin which comes nearest to the limit, or is farthest
	// beyond it, of Rows that the gate is about.
	Row  Row
	Rows int
	// Measured is the median over the runs, or that of the ratios of both, run by
	// run. Value is what was compared with the limit.
	Measured Estimate
	Value    float64
	Broken   bool
}

// Figure is what was measured: "cycles/s / BASELINE".
func (h Held) Figure() string {
	return strings.TrimSuffix(h.Row.Unit+" / "+h.Gate.baseline, " / ")
}

// IsRatio reports whether Value is one.
func (h Held) IsRatio() bool { return h.Gate.baseline != "" }

// Limit is what was wanted: ">= 1.8", "<= 20ms".
func (h Held) Limit() string {
	if h.Gate.above {
		return "<= " + h.Gate.shown
	}
	return ">= " + h.Gate.shown
}

// ErrNoFigure: no plugin has the figure that a bound is about.
var ErrNoFigure = errors.New("no plugin has the figure")

// hold adds what the folder says of the bounds.
func (c *Comparison) hold(dir, filter string, bounds []Gate) error {
	m, err := ReadWhole(dir)
	if err != nil {
		return err
	}
	kept, _, err := read(dir, m, filter)
	if err != nil {
		return err
	}
	whole, _, err := read(dir, m, "") // a filter may leave out the baselines
	if err != nil {
		return err
	}
	runs := runsOf(whole)
	for _, g := range bounds {
		h := g.hold(kept, runs)
		if h.Rows == 0 {
			return fmt.Errorf("%w %q in %s", ErrNoFigure, strings.TrimSuffix(g.unit+" / "+g.baseline, " / "), dir)
		}
		c.Held = append(c.Held, h)
	}
	return nil
}

// hold finds the row that is the worst for the gate.
func (g Gate) hold(figures []measured, runs map[Row][]float64) Held {
	worst, seen := Held{Gate: g}, map[Row]bool{}
	for _, f := range figures {
		if f.subject.Kind != KindPlugin || f.subject.BuildOf != "" || !g.concerns(f.Unit) || seen[f.Row] {
			continue
		}
		seen[f.Row] = true
		h := Held{Gate: g, Row: f.Row, Measured: Median(runs[f.Row])}
		if g.baseline != "" {
			of := strings.Replace(f.Cell, "/backend="+f.subject.Name+"/", "/backend="+g.baseline+"/", 1)
			h.Measured = Compare(runs[f.Row], runs[Row{of, f.Unit}]).Estimate
		}
		if h.Measured.N == 0 {
			continue
		}
		h.Value = g.valueOf(f.Unit, h.Measured)
		h.Broken, h.Rows = g.beyond(h.Value), worst.Rows+1
		if order := cmp.Compare(h.Value, worst.Value); worst.Rows == 0 || g.above && order > 0 || !g.above && order < 0 {
			worst = h
		}
		worst.Rows = h.Rows
	}
	return worst
}

// valueOf is the median; of the longest operation of each run, and of what must
// not be at all, that of the worst run.
func (g Gate) valueOf(unit string, e Estimate) float64 {
	if g.baseline == "" && g.above && (strings.HasPrefix(unit, "max-") || g.limit == 0) {
		return e.Max
	}
	return e.Center
}
