package results

import (
	"math"
	"strings"
)

// quantiles are the quantiles that results.txt has. The field samples is the smallest number of
// samples for which a quantile is written. For all but p50, at least five of these samples are
// above the quantile.
var quantiles = []struct {
	name    string
	q       float64
	samples int64
}{
	{"p50", 0.50, 1},
	{"p90", 0.90, 50},
	{"p99", 0.99, 500},
	{"p99.9", 0.999, 5000},
}

// operations are the operations that have latencies. results.txt declares the units of all of them.
var operations = []string{"acquire", "open-acquire", "lag", "release", "renew", "call", "handoff", "wait", "takeover", "overdue", "notice", "first-grant", "spent", "replaced"}

func percentiles(op string, samples int64, at func(q float64) float64) []figure {
	var out []figure
	for _, q := range quantiles {
		if samples >= q.samples {
			out = append(out, figure{q.name + "-ns/" + op, at(q.q)})
		}
	}
	return out
}

// Samples returns the smallest number of samples for which a quantile such as "p99-ns/acquire" is
// written. It returns 0 if the unit is not a quantile.
func Samples(unit string) int64 {
	name, _, _ := strings.Cut(unit, "-ns/")
	for _, q := range quantiles {
		if q.name == name {
			return q.samples
		}
	}
	return 0
}

// Quantile returns the q-quantile of sorted values. It returns the value at the nearest rank and
// does not interpolate. Without values it returns 0.
func Quantile(sorted []int64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(q*float64(len(sorted)))) - 1
	return float64(sorted[min(max(rank, 0), len(sorted)-1)])
}
