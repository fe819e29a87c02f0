package kit

import (
	"sync/atomic"
	"time"
)

const (
	// FirstSpan is how long a store grants a lock by itself to a waiter that is
	// near, and LongestSpan to one however far away.
	FirstSpan, LongestSpan = 500 * time.Millisecond, 2 * time.Second

	// When the grant comes to a waiter, its sign of life is older than a round trip by
	// up to the time between two signs, which is 200 ms or a round trip, and by the wait
	// for requests before it. Two round trips more are what core wants to be left for
	// the first renewal.
	spanTrips, spanBeside, spanStep = 5, 200 * time.Millisecond, 100 * time.Millisecond
)

// Distance is how far away a store is. The zero value is near. Its methods may be
// called from any number of goroutines.
type Distance struct{ trip atomic.Int64 }

// Took notes how long a round trip has taken. One that took longer than those before
// may have been held up: it counts for an eighth.
func (d *Distance) Took(trip time.Duration) {
	if last := d.Trip(); last != 0 && trip > last {
		trip = last + (trip-last)/8
	}
	d.trip.Store(int64(trip))
}

// Trip is how long a round trip takes, zero when none is known.
func (d *Distance) Trip() time.Duration { return time.Duration(d.trip.Load()) }

// FirstSpan is how long the store may grant a lock by itself to a waiter of this
// process: FirstSpan for a round trip of up to 60 ms, LongestSpan from 340 ms on.
func (d *Distance) FirstSpan() time.Duration {
	span := spanBeside + spanTrips*d.Trip()
	return min(max((span+spanStep-1).Truncate(spanStep), FirstSpan), LongestSpan)
}
