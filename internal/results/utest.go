package results

import (
	"cmp"
	"slices"

	"golang.org/x/perf/benchmath"
)

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

func test(a, b []float64) (Test, []error) {
	c := benchmath.AssumeNothing.Compare(sample(a), sample(b))
	return Test{c.P, c.P, c.P < Alpha}, c.Warnings
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
