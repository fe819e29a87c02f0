package results

import (
	"cmp"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// confidence is the level of all intervals, the same as in benchstat.
const confidence = 0.95

// Estimate is a median over runs. Lo and Hi are the bounds of its confidence
// interval. They are infinite if there are too few runs for an interval.
type Estimate struct {
	N      int
	Center float64
	Lo, Hi float64
	// Min and Max are the extremes of all runs, because a median does not show a stall in one run.
	Min, Max float64
}

// Median estimates the median of values, which has one value from each run, without
// assumptions about their distribution. Without values it returns the zero Estimate.
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

// Spread is the distance from the center to the farther bound, as a fraction of
// the center: 0.05 for ±5 %. It is infinite without an interval.
func (e Estimate) Spread() float64 {
	if !e.Bounded() || e.Center == 0 {
		return math.Inf(1)
	}
	return max(e.Hi-e.Center, e.Center-e.Lo) / math.Abs(e.Center)
}

// Ratio compares a subject with a baseline.
type Ratio struct {
	// Estimate is the median of the ratios of each run. Both values of a ratio
	// were measured close together, so that most of the machine's drift cancels.
	Estimate
	// Test compares the two samples. If Test does not support a difference, the report shows "~".
	Test
}

// Compare compares the runs of a subject with those of a baseline. It pairs the
// runs by index. The estimate leaves out runs without a partner, and runs whose
// baseline value is zero.
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

// Alpha is the significance level of all tests, after the correction for their number.
const Alpha = 0.05

// Test is the result of the Mann-Whitney U test for two samples.
type Test struct {
	// P is the p-value. Adjusted is the p-value as corrected by [Holm], or equals P
	// if the test is the only test.
	P, Adjusted float64
	// Supported is set if Adjusted is below [Alpha], which shows that the samples differ.
	Supported bool
}

func test(a, b []float64) Test {
	c := benchmath.AssumeNothing.Compare(sample(a), sample(b))
	return Test{c.P, c.P, c.P < Alpha}
}

// Holm corrects the p-values of tests for their number. The probability that any
// test is supported although nothing differs then stays below [Alpha] (S. Holm: A
// simple sequentially rejective multiple test procedure, Scandinavian Journal of
// Statistics 6, 1979).
func Holm(tests []*Test) {
	highest := 0.0
	order := slices.SortedStableFunc(slices.Values(tests), func(a, b *Test) int { return cmp.Compare(a.P, b.P) })
	for rank, t := range order {
		highest = max(highest, min(1, t.P*float64(len(tests)-rank)))
		t.Adjusted, t.Supported = highest, highest < Alpha
	}
}

// Difference compares one figure of one cell in two samples of runs.
type Difference struct {
	Row
	Old, New Estimate
	// Delta is the change of the median as a fraction of the old median: 0.2
	// for 20 % more. It is infinite if the old median is 0.
	Delta float64
	// Test is corrected for the number of rows of the comparison.
	Test
	// Better is 1 if higher values are better, -1 if lower values are better, and 0
	// if the direction has no meaning.
	Better int
	// Control reports whether the row belongs to a baseline or a floor, which the
	// builds share. The tests of such rows are corrected together.
	Control bool

	before, after []float64 // values of the runs
}

// NewDifference tests whether the runs differ. Each side must have at least one run.
func NewDifference(row Row, before, after []float64) Difference {
	d := Difference{Row: row, Old: Median(before), New: Median(after), Test: test(before, after), before: before, after: after}
	d.Delta = (d.New.Center - d.Old.Center) / math.Abs(d.Old.Center)
	if d.New.Center == d.Old.Center {
		d.Delta = 0
	}
	return d
}

// Matters is the smallest change of a median, as a fraction, that counts as
// worse or better. Smaller changes do not count even if they are supported.
const Matters = 0.05

// Worse reports whether the figure got worse: the difference is supported, and above [Matters].
func (d Difference) Worse() bool {
	return d.Supported && math.Abs(d.Delta) > Matters && d.Delta*float64(d.Better) < 0
}

// Improved is like Worse, but for a figure that got better.
func (d Difference) Improved() bool {
	return d.Supported && math.Abs(d.Delta) > Matters && d.Delta*float64(d.Better) > 0
}

// canBeSupported reports whether there are enough runs to support a difference when
// the number of rows that are tested together is rows.
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

// RunsNeeded is the smallest number of runs on each side with which the U test can
// support a difference when the number of tested rows is rows.
func RunsNeeded(rows int) int {
	n := 2
	for leastP(n, n)*float64(max(rows, 1)) >= Alpha {
		n++
	}
	return n
}

// leastP is the lowest p-value of the U test for samples of sizes a and b. It is
// two (for two sides) divided by the number of ways to choose a of all a+b runs.
func leastP(a, b int) float64 {
	ways := 1.0
	for i := 1; i <= a; i++ {
		ways = ways * float64(b+i) / float64(i)
	}
	return 2 / ways
}

// maxChange is the largest change, as a factor, that the search for a gate's sensitivity tries.
const maxChange = 16

// detectable is the smallest change of the median, as a fraction, that these runs could have
// supported when the number of tested rows is rows. The function scales the new runs to the
// median of the old runs, and then further until the test supports a difference. The result is
// negative for a fall, and infinite if the runs could not have supported any change.
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
	// p falls as the samples move apart, so bisection finds the threshold.
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

// Sensitivity is the smallest change that could have broken a gate (minimum detectable effect).
type Sensitivity struct {
	Gate Gate
	// Row is the least sensitive of the gate's rows. Detectable is the smallest
	// change of its median, as a fraction, that the runs could have supported. It
	// is infinite if they could have supported none.
	Row        Row
	Detectable float64
}

// Suffices reports whether the runs could have shown a change just beyond the
// gate's limit in every row of the gate.
func (p Sensitivity) Suffices() bool {
	if math.IsInf(p.Detectable, 0) {
		return false
	}
	return p.Gate.limit == 0 || p.Gate.above != (p.Gate.limit > 0) || math.Abs(p.Detectable) <= math.Abs(p.Gate.limit)
}

// sensitivity returns the sensitivity of the gate's least sensitive row.
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
