package kit

import (
	"sync/atomic"
	"time"
)

const (
	// FirstSpan is for how long a store that grants a lock to a near waiter by itself
	// keeps it granted. LongestSpan is the longest such time for a distant waiter.
	FirstSpan, LongestSpan = 500 * time.Millisecond, 2 * time.Second

	// A waiter's sign of life is older than one round trip when its grant
	// arrives. It is older by up to the time between two signs (200 ms or a
	// round trip), and by its wait behind other requests. Two more round trips
	// are what core wants to have left for the first renewal.
	spanTrips, spanBeside, spanStep = 5, 200 * time.Millisecond, 100 * time.Millisecond
)

// Distance is how far away a store is. The zero value means near. Its methods may
// be called from any number of goroutines.
type Distance struct{ trip atomic.Int64 }

// Took notes how long a round trip has taken. If it took longer than before, only an
// eighth of the difference counts, because the trip may have been delayed by chance.
func (d *Distance) Took(trip time.Duration) {
	if last := d.Trip(); last != 0 && trip > last {
		trip = last + (trip-last)/8
	}
	d.trip.Store(int64(trip))
}

// Trip returns how long a round trip takes, or zero when none is known.
func (d *Distance) Trip() time.Duration { return time.Duration(d.trip.Load()) }

// FirstSpan returns how long a grant that the store makes to a waiter of this process
// lasts at first: FirstSpan for a round trip of up to 60 ms, LongestSpan from 340 ms on.
func (d *Distance) FirstSpan() time.Duration {
	span := spanBeside + spanTrips*d.Trip()
	return min(max((span+spanStep-1).Truncate(spanStep), FirstSpan), LongestSpan)
}
