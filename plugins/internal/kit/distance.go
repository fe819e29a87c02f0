package kit

import (
	"sync/atomic"
	"time"
)

const (
	// FirstSpan is how long the store keeps a lock granted to a near waiter that has
	// not used the grant. LongestSpan is that time for the most distant waiter.
	FirstSpan, LongestSpan = 500 * time.Millisecond, 2 * time.Second

	// A grant's time counts from the waiter's last sign of life. Until the grant arrives, three
	// times pass: a round trip, the pause between two signs (200 ms or a round trip), and a wait
	// behind other requests. Core's first renewal needs two more round trips.
	spanTrips, spanBeside, spanStep = 5, 200 * time.Millisecond, 100 * time.Millisecond
)

// Distance is how far away a store is. The zero value means near. Its methods may
// be called from any number of goroutines.
type Distance struct{ trip atomic.Int64 }

// Took notes how long a round trip has taken. If it took longer than Trip returns, only
// an eighth of the difference counts, because the delay may be due to chance.
func (d *Distance) Took(trip time.Duration) {
	if last := d.Trip(); last != 0 && trip > last {
		trip = last + (trip-last)/8
	}
	d.trip.Store(int64(trip))
}

// Trip returns how long a round trip takes, or zero when that is not known.
func (d *Distance) Trip() time.Duration { return time.Duration(d.trip.Load()) }

// FirstSpan returns how long a grant to a waiter of this process lasts if it is not
// renewed. This is 500 ms for a round trip of up to 60 ms, and 2 s above 340 ms.
func (d *Distance) FirstSpan() time.Duration {
	span := spanBeside + spanTrips*d.Trip()
	return min(max((span+spanStep-1).Truncate(spanStep), FirstSpan), LongestSpan)
}
