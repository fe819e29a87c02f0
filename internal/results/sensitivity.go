package results

import "math"

// maxChange is the largest change, as a factor, that is tried to find a gate's sensitivity.
const maxChange = 16

// detectable is the smallest change of the median, as a fraction, that these runs
// could have supported among that many rows: the runs of the new side are moved
// to the median of the old one, and scaled until the test tells them apart. It
// is negative for a fall, and infinite when they could not have supported any.
func (d Difference) detectable(above bool, rows int) float64 {
	sign := 1.0
	if !above {
		sign = -1
	}
	if d.Old.Center <= 0 || d.New.Center <= 0 || !d.canBeSupported(rows) {
		return math.Inf(int(sign))
	}
	shows := func(factor float64) bool {
		moved := make([]float64, len(d.after))
		for i, v := range d.after {
			moved[i] = v / d.New.Center * d.Old.Center * factor
		}
		t, _ := test(d.before, moved)
		return t.P*float64(rows) < Alpha
	}
	// The further apart they are the lower is p, so that halving finds the edge.
	none, some := 1.0, math.Pow(maxChange, sign)
	if !shows(some) {
		return math.Inf(int(sign))
	}
	for range 40 {
		if middle := math.Sqrt(none * some); shows(middle) {
			some = middle
		} else {
			none = middle
		}
	}
	return some - 1
}

// Sensitivity is what a gate could have stopped: its minimum detectable effect.
type Sensitivity struct {
	Gate Gate
	// Row is the one of the gate's rows that shows the least, and Detectable the
	// smallest change of its median, as a fraction, that these runs could have
	// supported; infinite for none.
	Row        Row
	Detectable float64
}

// Suffices reports whether the gate could have stopped a change that is just
// beyond its limit, in each of its rows.
func (p Sensitivity) Suffices() bool {
	if math.IsInf(p.Detectable, 0) {
		return false
	}
	return p.Gate.limit == 0 || p.Gate.above != (p.Gate.limit > 0) || math.Abs(p.Detectable) <= math.Abs(p.Gate.limit)
}

// sensitivity finds the row of the gate that shows the least.
func (g Gate) sensitivity(rows []Difference) Sensitivity {
	p := Sensitivity{Gate: g}
	for _, d := range rows {
		if !g.concerns(d.Unit) {
			continue
		}
		if least := d.detectable(g.above, len(rows)); p.Row == (Row{}) || math.Abs(least) > math.Abs(p.Detectable) {
			p.Row, p.Detectable = d.Row, least
		}
	}
	return p
}
