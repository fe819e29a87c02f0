package kit

import (
	"sync/atomic"
	"time"
)

const (
	// FirstSpan is how long a store grants a lock by itself to a near waiter, and
	// LongestSpan the same for a waiter however far away.
	FirstSpan, LongestSpan = 500 * time.Millisecond, 2 * time.Second

	// A waiter's sign of life is older than a round trip when its grant arrives.
	// It is older by up to the time between two signs, 200 ms or a round trip,
	// and by the wait for requests before it. Two round trips more are what core
	// wants to have left for the first renewal.
	spanTrips, spanBeside, spanStep = 5, 200 * time.Millisecond, 100 * time.Millisecond
)

// Distance is how far away a store is. The zero value is near. Its methods may be
// called from any number of goroutines.
type Distance struct{ trip atomic.Int64 }

// Took notes how long a round trip has taken. A trip longer than those before
// counts for an eighth, because it may have been held up.
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
