package kit

import (
	"sync/atomic"
	"time"
)

const (
	// FirstSpan is the time after which a store's grant to a near waiter ends, unless the waiter uses
	// the grant. LongestSpan is this time for the most distant waiter.
	FirstSpan, LongestSpan = 500 * time.Millisecond, 2 * time.Second

	// A grant's time counts from the last sign that the waiter's process lives. Three periods pass
	// before the grant arrives: a round trip, the pause between two signs (200 ms or a round trip),
	// and a wait behind other requests. Core's first renewal needs two more round trips.
	spanTrips, spanBeside, spanStep = 5, 200 * time.Millisecond, 100 * time.Millisecond
)

// Distance is the measured round trip time to a store. The zero value means a near store. Its
// methods may be called from any number of goroutines.
type Distance struct{ trip atomic.Int64 }

// Took records the time of a round trip. If it is longer than Trip's result, only an eighth of the
// difference counts, because the delay may be due to chance.
func (d *Distance) Took(trip time.Duration) {
	if last := d.Trip(); last != 0 && trip > last {
		trip = last + (trip-last)/8
	}
	d.trip.Store(int64(trip))
}

// Trip returns the time of a round trip, or zero when it is not known.
func (d *Distance) Trip() time.Duration { return time.Duration(d.trip.Load()) }

// FirstSpan returns the time after which a grant to a waiter of this process ends unless renewed.
// It is 500 ms if a round trip takes up to 60 ms, and 2 s if it takes over 340 ms.
func (d *Distance) FirstSpan() time.Duration {
	span := spanBeside + spanTrips*d.Trip()
	return min(max((span+spanStep-1).Truncate(spanStep), FirstSpan), LongestSpan)
}
