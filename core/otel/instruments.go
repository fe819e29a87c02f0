package otel

import (
	"errors"

	"go.opentelemetry.io/otel/metric"
)

type instruments struct {
	wait, hold, renew, slack, vacancy                        metric.Float64Histogram
	held                                                     metric.Int64UpDownCounter
	lost, suspect, waits, failures, exits, restarts, changes metric.Int64Counter
	dropped                                                  metric.Int64Counter
}

// Bounds of the histograms in seconds: round trips, and times that people wait.
var (
	tripBounds = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
	longBounds = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600}
)

func newInstruments(m metric.Meter) (in instruments, err error) {
	var errs []error
	seconds := func(name, doc string, bounds []float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithDescription(doc), metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(bounds...))
		errs = append(errs, err)
		return h
	}
	count := func(name, unit, doc string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithDescription(doc), metric.WithUnit(unit))
		errs = append(errs, err)
		return c
	}
	in.wait = seconds("lock.wait.duration", "Time from the call of Acquire to the grant.", longBounds)
	in.hold = seconds("lock.hold.duration", "Time from the grant to the release or the loss.", longBounds)
	in.renew = seconds("lock.renew.duration", "Round trip of a renewal.", tripBounds)
	in.slack = seconds("lock.renew.slack", "What was left of a lease when its renewal was confirmed.", longBounds)
	in.vacancy = seconds("lock.election.vacancy.duration", "Time from one leader's end to the next one's term.", longBounds)
	in.lost = count("lock.leases.lost", "{lease}", "Leases lost, by cause.")
	in.suspect = count("lock.leases.suspect", "{lease}", "Leases that a failed renewal put in doubt.")
	in.waits = count("lock.waits", "{wait}", "Acquires that had to wait, and refusals while they did.")
	in.failures = count("lock.acquire.failures", "{failure}", "Acquires that returned no lease, by error.")
	in.exits = count("lock.plugin.exits", "{exit}", "Plugin processes that ended by themselves.")
	in.restarts = count("lock.plugin.restarts", "{restart}", "Plugin processes that replaced one.")
	in.dropped = count("lock.events.dropped", "{event}", "Events that were not recorded because too many came at once.")
	in.changes = count("lock.election.changes", "{change}", "New leaders.")
	in.held, err = m.Int64UpDownCounter("lock.leases.held", metric.WithDescription("Leases held now."), metric.WithUnit("{lease}"))
	return in, errors.Join(append(errs, err)...)
}
