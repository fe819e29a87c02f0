package bench

import (
	"time"

	"github.com/lockbench/lockbench/bench/internal/results"
)

const (
	warmUp      = 200 * time.Millisecond
	quickWarmUp = 50 * time.Millisecond
	// A user may choose a Measure from minMeasure to maxMeasure.
	minMeasure = 10 * time.Millisecond
	maxMeasure = time.Hour
	maxHold    = time.Hour
	maxRTT     = time.Second
	// usualFor and quickFor are the defaults of For, the duration of scenario ttl. A user may
	// choose a duration from minFor to maxFor.
	usualFor, quickFor = time.Minute, 12 * time.Second
	minFor, maxFor     = time.Second, 6 * time.Hour
	// QuickTTL is the default TTL of a quick plan for takeover alone. It is short, because in half
	// of the modes leaders change a dozen times, and each time the TTL must expire first.
	QuickTTL = 3 * time.Second
	// quickRuns is the smallest number of runs from which a median has a confidence interval.
	quickRuns = 6
)

const maxHosts = 64

// DefaultPlan is what "lockbench run" measures without flags, or with --quick.
func DefaultPlan(quick bool) Plan {
	p := Plan{
		Scenarios: []string{"acquire"},
		Runs:      10,
		TTL:       10 * time.Second,
		For:       usualFor,
		WarmUp:    warmUp,
		Measure:   results.MeasuredFor(quick),
		Quick:     quick,
		MTLS:      true,
	}
	if quick {
		p.Runs, p.WarmUp, p.For = quickRuns, quickWarmUp, quickFor
	}
	return p
}
