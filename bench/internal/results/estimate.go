package results

import (
	"cmp"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// confidence is the level of all confidence intervals. benchstat has the same level.
const confidence = 0.95

// Estimate is a median of one figure over several runs. Lo and Hi are the bounds of its confidence
// interval, or infinite if there are too few runs.
type Estimate struct {
	N      int
	Center float64
	Lo, Hi float64
	// Min and Max are the least and the greatest value. Max shows a stall that the median hides.
	Min, Max float64
}

// Median estimates the median of values, which has one value from each run. It assumes no
// distribution of the values. Without values it returns the zero Estimate.
func Median(values []float64) Estimate {
	if len(values) == 0 {
		return Estimate{}
	}
	s := benchmath.AssumeNothing.Summary(sample(values), confidence)
	return Estimate{N: len(values), Center: s.Center, Lo: s.Lo, Hi: s.Hi, Min: slices.Min(values), Max: slices.Max(values)}
}

// Bounded reports whether there were enough runs for an interval.
func (e Estimate) Bounded() bool {
	return e.N > 0 && !math.IsInf(e.Lo, 0) && !math.IsInf(e.Hi, 0)
}

// Spread is the distance from the median to the farther end of its confidence interval, divided by
// the median: 0.05 for ±5 %. It is infinite if there is no interval, or if the median is 0.
func (e Estimate) Spread() float64 {
	if !e.Bounded() || e.Center == 0 {
		return math.Inf(1)
	}
	return max(e.Hi-e.Center, e.Center-e.Lo) / math.Abs(e.Center)
}

// Ratio is the figure of a subject divided by the figure of a baseline.
type Ratio struct {
	// Estimate is the median of the ratios, one from each run. A run measures both values soon
	// after each other, so if the machine gets slower, the ratio hardly changes.
	Estimate
	// Test tests whether the two figures differ. If not, the report shows "~" for the ratio.
	Test
}

// Compare compares a subject's values with a baseline's values. Values with the same index are from
// the same run. The ratio omits runs that lack a value, and runs in which the baseline's value is
// zero.
func Compare(subject, baseline []float64) Ratio {
	var ratios []float64
	for i := range min(len(subject), len(baseline)) {
		if baseline[i] != 0 {
			ratios = append(ratios, subject[i]/baseline[i])
		}
	}
	if len(ratios) == 0 {
		return Ratio{}
	}
	return Ratio{Median(ratios), test(subject, baseline)}
}

// sample copies the values, because benchmath sorts its argument.
func sample(values []float64) *benchmath.Sample {
	t := benchmath.DefaultThresholds
	return benchmath.NewSample(slices.Clone(values), &t)
}

// Alpha is the significance level of all tests. Before a p-value is compared with Alpha, it is
// corrected for the number of tests.
const Alpha = 0.05

// Test is the result of the Mann-Whitney U test for two samples.
type Test struct {
	// P is the p-value. Adjusted is P as corrected by [Holm], or equals P if there is one test.
	P, Adjusted float64
	// Supported reports whether Adjusted is below [Alpha]: the samples then differ.
	Supported bool
}

func test(a, b []float64) Test {
	c := benchmath.AssumeNothing.Compare(sample(a), sample(b))
	return Test{c.P, c.P, c.P < Alpha}
}

// Holm corrects p-values for the number of tests. If nothing differs at all, the probability that
// any corrected test reports a difference is below [Alpha] (S. Holm: A simple sequentially
// rejective multiple test procedure, Scandinavian Journal of Statistics 6, 1979).
func Holm(tests []*Test) {
	highest := 0.0
	order := slices.SortedStableFunc(slices.Values(tests), func(a, b *Test) int { return cmp.Compare(a.P, b.P) })
	for rank, t := range order {
		highest = max(highest, min(1, t.P*float64(len(tests)-rank)))
		t.Adjusted, t.Supported = highest, highest < Alpha
	}
}

// Difference compares one figure of one cell (a subject under one load) in old and in new runs.
type Difference struct {
	Row
	Old, New Estimate
	// Delta is the change of the median as a fraction of the old median: 0.2
	// for 20 % more. It is infinite if the old median is 0.
	Delta float64
	// Test has a p-value that is corrected for the number of rows in the comparison.
	Test
	// Better is 1 if a higher value is better, -1 if a lower value is better, and otherwise 0.
	Better int
	// Control reports whether the row is about a baseline or a floor, which is the same in both
	// builds. The p-values of control rows are corrected for the number of control rows only.
	Control bool

	before, after []float64 // values of the runs
}

// NewDifference tests whether the values in before differ from the values in after. Each slice must
// have at least one value.
func NewDifference(row Row, before, after []float64) Difference {
	d := Difference{Row: row, Old: Median(before), New: Median(after), Test: test(before, after), before: before, after: after}
	d.Delta = (d.New.Center - d.Old.Center) / math.Abs(d.Old.Center)
	if d.New.Center == d.Old.Center {
		d.Delta = 0
	}
	return d
}

// Matters is the change of a median, as a fraction, above which a figure counts as worse or better.
// A smaller change does not count even if a test supports it.
const Matters = 0.05

// Worse reports whether the figure got worse by more than [Matters], and a test supports this.
func (d Difference) Worse() bool {
	return d.Supported && math.Abs(d.Delta) > Matters && d.Delta*float64(d.Better) < 0
}

func (d Difference) Improved() bool {
	return d.Supported && math.Abs(d.Delta) > Matters && d.Delta*float64(d.Better) > 0
}

// canBeSupported reports whether there are enough runs for a test to show a difference, if the
// given number of rows is tested together.
func (d Difference) canBeSupported(rows int) bool {
	return d.Old.N > 0 && d.New.N > 0 && leastP(d.Old.N, d.New.N)*float64(rows) < Alpha
}

func correct(rows []Difference) {
	var tests []*Test
	for i := range rows {
		tests = append(tests, &rows[i].Test)
	}
	Holm(tests)
}

// RunsNeeded is how many runs of each build the U test needs to be able to show a difference, if
// the given number of rows is tested together.
func RunsNeeded(rows int) int {
	n := 2
	for leastP(n, n)*float64(max(rows, 1)) >= Alpha {
		n++
	}
	return n
}

// leastP is the lowest p-value that the U test can have for samples of a and b runs. It is 2 (the
// test has two sides) divided by the number of ways to choose a of a+b runs.
func leastP(a, b int) float64 {
	ways := 1.0
	for i := 1; i <= a; i++ {
		ways = ways * float64(b+i) / float64(i)
	}
	return 2 / ways
}

// maxChange is the largest factor between old and new medians that method detectable tries.
const maxChange = 16

// detectable returns the smallest change of the median (as a fraction) that a test of these runs
// could have shown, if the given number of rows is tested together. It scales the new values to the
// old median, and then scales them more, until the test shows a difference. The result is negative
// if the parameter above is false. It is infinite if the test could not have shown even a factor of
// maxChange.
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
	// The p-value falls as the samples move apart, so bisection finds the smallest change.
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

// Sensitivity is the smallest change of a figure that a gate (a limit for changes) could have
// noticed.
type Sensitivity struct {
	Gate Gate
	// Row is that row of the gate in which a change is hardest to notice. Detectable is the
	// smallest change of its median (as a fraction) that a test could have shown. It is infinite if
	// no change could have been shown.
	Row        Row
	Detectable float64
}

// Suffices reports whether a change just beyond the gate's limit could have been noticed in each
// row that the gate limits.
func (p Sensitivity) Suffices() bool {
	if math.IsInf(p.Detectable, 0) {
		return false
	}
	return p.Gate.limit == 0 || p.Gate.above != (p.Gate.limit > 0) || math.Abs(p.Detectable) <= math.Abs(p.Gate.limit)
}

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
