package results

import (
	"cmp"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// confidence is the level of all confidence intervals. It is the default level of benchstat.
const confidence = 0.95

// Estimate is the median of one figure over several runs. Lo and Hi are the ends of its confidence
// interval. They are infinite if there are too few runs for an interval.
type Estimate struct {
	N      int
	Center float64
	Lo, Hi float64
	// Min and Max are the smallest and the largest value. Max shows a stall that a median would hide.
	Min, Max float64
}

// Median estimates the median of values, which has one value from each run. It makes no assumption
// about the distribution of the values. Without values it returns the zero Estimate.
func Median(values []float64) Estimate {
	if len(values) == 0 {
		return Estimate{}
	}
	s := benchmath.AssumeNothing.Summary(sample(values), confidence)
	return Estimate{N: len(values), Center: s.Center, Lo: s.Lo, Hi: s.Hi, Min: slices.Min(values), Max: slices.Max(values)}
}

// Bounded reports whether there were enough runs for a confidence interval.
func (e Estimate) Bounded() bool {
	return e.N > 0 && !math.IsInf(e.Lo, 0) && !math.IsInf(e.Hi, 0)
}

// Spread is the distance from the median to the farther end of the confidence interval, divided by
// the median: 0.05 for ±5 %. It is infinite if the median is 0, or if there is no interval.
func (e Estimate) Spread() float64 {
	if !e.Bounded() || e.Center == 0 {
		return math.Inf(1)
	}
	return max(e.Hi-e.Center, e.Center-e.Lo) / math.Abs(e.Center)
}

// Ratio is the figure of a subject divided by the figure of a baseline.
type Ratio struct {
	// Estimate is the median of the ratios, one from each run. A run measures both figures soon after
	// each other, so a machine that gets slower hardly changes their ratio.
	Estimate
	// Test is the test for a difference. If it shows no difference, reports show "~", not the ratio.
	Test
}

// Compare compares a subject's values with a baseline's values. Values with the same index are from
// the same run. The ratio leaves out each run that lacks one of the two values, or whose baseline
// value is zero.
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

// sample copies the values, because package benchmath sorts the slice that it gets.
func sample(values []float64) *benchmath.Sample {
	return benchmath.NewSample(slices.Clone(values), new(benchmath.DefaultThresholds))
}

// Alpha is the significance level of all tests. A p-value is corrected for the number of tests
// before it is compared with Alpha.
const Alpha = 0.05

// Test is the result of the Mann-Whitney U test for two samples.
type Test struct {
	// P is the p-value. Adjusted is P as corrected by [Holm]. With one test, both are equal.
	P, Adjusted float64
	// Supported reports whether Adjusted is below [Alpha], so that the test supports a difference.
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
