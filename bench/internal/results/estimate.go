package results

import (
	"cmp"
	"math"
	"slices"

	"golang.org/x/perf/benchmath"
)

// confidence is the level of all intervals, as benchstat's.
const confidence = 0.95

// Estimate is a median over runs. Lo and Hi bound its confidence interval;
// they are infinite when there are too few runs for one.
type Estimate struct {
	N      int
	Center float64
	Lo, Hi float64
	// Min and Max are of all runs: a stall in one of them is in no median.
	Min, Max float64
}

// Median estimates the median of values, one of each run, without assumptions
// about their distribution. Of no values it is the zero Estimate.
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

// Spread is the larger distance of a bound from the center, as a fraction of
// the center: 0.05 for ±5 %. It is infinite without an interval.
func (e Estimate) Spread() float64 {
	if !e.Bounded() || e.Center == 0 {
		return math.Inf(1)
	}
	return max(e.Hi-e.Center, e.Center-e.Lo) / math.Abs(e.Center)
}

// Ratio compares a subject with a baseline.
type Ratio struct {
	// Estimate is of the ratios of both, run by run: the runs of one round
	// follow each other closely, so that most of the machine's drift cancels.
	Estimate
	// Test is of the two samples. What it does not support is shown as "~".
	Test
}

// Compare relates the runs of a subject to those of a baseline, which are
// paired by index. Runs without a partner are left out of the estimate. A run
// whose baseline is zero has no ratio.
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

// sample copies, because benchmath sorts what it is given.
func sample(values []float64) *benchmath.Sample {
	t := benchmath.DefaultThresholds
	return benchmath.NewSample(slices.Clone(values), &t)
}

// Alpha is the level of all tests, after the correction for their number.
const Alpha = 0.05

// Test is what the Mann-Whitney U test says of two samples.
type Test struct {
	// P is the p-value, and Adjusted what [Holm] has made of it; P of a test that
	// is not one of several.
	P, Adjusted float64
	// Supported reports whether Adjusted is below [Alpha]: the samples differ.
	Supported bool
}

func test(a, b []float64) Test {
	c := benchmath.AssumeNothing.Compare(sample(a), sample(b))
	return Test{c.P, c.P, c.P < Alpha}
}

// Holm corrects the p-values of tests for their number (S. Holm: A simple
// sequentially rejective multiple test procedure, Scandinavian Journal of
// Statistics 6, 1979): the chance that any of them is supported although nothing
// differs stays below [Alpha].
func Holm(tests []*Test) {
	highest := 0.0
	order := slices.SortedStableFunc(slices.Values(tests), func(a, b *Test) int { return cmp.Compare(a.P, b.P) })
	for rank, t := range order {
		highest = max(highest, min(1, t.P*float64(len(tests)-rank)))
		t.Adjusted, t.Supported = highest, highest < Alpha
	}
}
