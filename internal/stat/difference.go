package stat

import (
	"cmp"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// Alpha is the level of all tests, after the correction for their number.
const Alpha = 0.05

// Difference relates one figure of one cell in two samples of runs.
type Difference struct {
	Row
	Old, New Estimate
	// Delta is the change of the median as a fraction of the old one: 0.2 for
	// 20 % more. It is infinite when the old median is 0.
	Delta float64
	// P is that of the Mann-Whitney U test. Adjusted is P corrected by Holm's
	// method for the number of rows of the comparison.
	P, Adjusted float64
	// Effect is Cliff's delta: the chance that a new run is higher than an old
	// one, less the chance that it is lower, from -1 to 1.
	Effect float64
	// Supported reports whether Adjusted is below [Alpha].
	Supported bool
	// Better is 1 where higher values are better, -1 where lower ones are, 0
	// where neither is.
	Better int
	// Control reports whether the row is of something that is the same in both
	// builds: a baseline or a floor. It is corrected among its like.
	Control  bool
	Warnings []string

	before, after []float64 // of the runs
}

// NewDifference tests whether the runs differ. Adjusted and Supported are as
// if it were the only row, until [Holm] has corrected them.
func NewDifference(row Row, before, after []float64) Difference {
	d := Difference{Row: row, Old: Median(before), New: Median(after), P: 1, Adjusted: 1, before: before, after: after}
	if len(before) == 0 || len(after) == 0 {
		d.Warnings = append(d.Warnings, "one side has no runs")
		return d
	}
	d.Delta = (d.New.Center - d.Old.Center) / math.Abs(d.Old.Center)
	if d.New.Center == d.Old.Center {
		d.Delta = 0
	}
	d.Effect = cliff(before, after)
	c := benchmath.AssumeNothing.Compare(sample(before), sample(after))
	if !math.IsNaN(c.P) {
		d.P = c.P
	}
	for _, w := range c.Warnings {
		d.Warnings = append(d.Warnings, w.Error())
	}
	d.Adjusted, d.Supported = d.P, d.P < Alpha
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

// cliff is Cliff's delta of two samples (N. Cliff: Dominance statistics,
// Psychological Bulletin 114, 1993).
func cliff(before, after []float64) float64 {
	sum := 0
	for _, a := range after {
		for _, b := range before {
			sum += cmp.Compare(a, b)
		}
	}
	return float64(sum) / float64(len(before)*len(after))
}

// Holm corrects the p-values of all rows for their number (S. Holm: A simple
// sequentially rejective multiple test procedure, Scandinavian Journal of
// Statistics 6, 1979): the chance that any row is supported although nothing
// differs stays below [Alpha].
func Holm(rows []Difference) {
	p := make([]float64, len(rows))
	for i, r := range rows {
		p[i] = r.P
	}
	for i, adjusted := range holm(p) {
		rows[i].Adjusted, rows[i].Supported = adjusted, adjusted < Alpha
	}
}

func holm(p []float64) []float64 {
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p[a], p[b]) })
	out := make([]float64, len(p))
	highest := 0.0
	for rank, i := range order {
		highest = max(highest, min(1, p[i]*float64(len(p)-rank)))
		out[i] = highest
	}
	return out
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
