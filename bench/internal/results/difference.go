package results

import (
	"math"
)

// Difference relates one figure of one cell in two samples of runs.
type Difference struct {
	Row
	Old, New Estimate
	// Delta is the change of the median as a fraction of the old one: 0.2 for
	// 20 % more. It is infinite when the old median is 0.
	Delta float64
	// Test is corrected for the number of rows of the comparison.
	Test
	// Better is 1 where higher values are better, -1 where lower ones are, 0
	// where neither is.
	Better int
	// Control reports whether the row is of something that is the same in both
	// builds: a baseline or a floor. It is corrected among its like.
	Control bool

	before, after []float64 // of the runs
}

// NewDifference tests whether the runs differ. Each side has some.
func NewDifference(row Row, before, after []float64) Difference {
	d := Difference{Row: row, Old: Median(before), New: Median(after), Test: test(before, after), before: before, after: after}
	d.Delta = (d.New.Center - d.Old.Center) / math.Abs(d.Old.Center)
	if d.New.Center == d.Old.Center {
		d.Delta = 0
	}
	return d
}

// Matters is the change of a median, as a fraction, below which a difference is
// neither worse nor better, however well it is supported.
const Matters = 0.05

// Worse reports whether the difference is supported, matters, and is to the bad.
func (d Difference) Worse() bool {
	return d.Supported && math.Abs(d.Delta) > Matters && d.Delta*float64(d.Better) < 0
}

// Improved is the opposite of Worse.
func (d Difference) Improved() bool {
	return d.Supported && math.Abs(d.Delta) > Matters && d.Delta*float64(d.Better) > 0
}

// canBeSupported reports whether there are enough runs for any difference to
// be supported among that many rows.
func (d Difference) canBeSupported(rows int) bool {
	return d.Old.N > 0 && d.New.N > 0 && leastP(d.Old.N, d.New.N)*float64(rows) < Alpha
}

// correct corrects the tests of all rows together.
func correct(rows []Difference) {
	var tests []*Test
	for i := range rows {
		tests = append(tests, &rows[i].Test)
	}
	Holm(tests)
}

// RunsNeeded is the fewest runs of each side with which the U test can support
// any difference among that many rows.
func RunsNeeded(rows int) int {
	n := 2
	for leastP(n, n)*float64(max(rows, 1)) >= Alpha {
		n++
	}
	return n
}

// leastP is the lowest p-value that the U test gives samples of these sizes:
// two sides, one of all ways to choose which runs are the lowest.
func leastP(a, b int) float64 {
	ways := 1.0
	for i := 1; i <= a; i++ {
		ways = ways * float64(b+i) / float64(i)
	}
	return 2 / ways
}

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
		return test(d.before, moved).P*float64(rows) < Alpha
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
