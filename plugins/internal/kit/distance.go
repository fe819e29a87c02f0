package kit

import (
	"sync/atomic"
	"time"
)

const (
	// FirstSpan is how long a grant to a waiter near the store lasts without a renewal. LongestSpan is
	// how long a grant to the most distant waiter lasts.
	FirstSpan, LongestSpan = 500 * time.Millisecond, 2 * time.Second

	// A grant's time begins when the waiter's process sends its last sign of life before the grant.
	// The grant arrives up to 200 ms and three round trips later, because signs are sent at intervals
	// and requests wait for each other. The first renewal by package core needs two more round trips.
	spanTrips, spanBeside, spanStep = 5, 200 * time.Millisecond, 100 * time.Millisecond
)

// Distance is the measured round trip time to a store. The zero value means a near store. Any
// number of goroutines may call the methods.
type Distance struct{ trip atomic.Int64 }

// Took records the time of a round trip. If this trip took longer than the recorded time, Took adds
// only an eighth of the difference, because a single delay may be due to chance.
func (d *Distance) Took(trip time.Duration) {
	if last := d.Trip(); last != 0 && trip > last {
		trip = last + (trip-last)/8
	}
	d.trip.Store(int64(trip))
}

// Trip returns the recorded time of a round trip, or zero if there is none yet.
func (d *Distance) Trip() time.Duration { return time.Duration(d.trip.Load()) }

// FirstSpan returns how long a grant to a waiter of this process lasts without a renewal. It is 500
// ms if a round trip takes at most 60 ms, and 2 s if a round trip takes over 340 ms.
func (d *Distance) FirstSpan() time.Duration {
	span := spanBeside + spanTrips*d.Trip()
	return min(max((span+spanStep-1).Truncate(spanStep), FirstSpan), LongestSpan)
}
