package proc

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time on the machine's monotonic clock in nanoseconds: the same for
// all its processes, and blind to steps of the wall clock (clock_gettime(2)).
func Now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // no system that Go runs on is without it
	}
	return t.Nano()
}

// Clock is the machine's, of [Now], for what this process has timed with its own, or
// one that began later, with a run. It counts nanoseconds, and steps of the wall clock
// do not show.
type Clock struct {
	base time.Time
	at   int64 // what it shows at base
}

// NewClock returns a clock that stands at zero now.
func NewClock() Clock { return ClockFrom(time.Now()) }

// ClockFrom returns a clock that stands at zero at a time that this process has
// read, or has reckoned from one.
func ClockFrom(zero time.Time) Clock { return Clock{base: zero} }

// readings is how often both clocks are read: the closest pair counts. A
// process that is not running between the two readings of a pair would be off
// by as long as that lasts, and the overlap of two holders in different
// processes could be one of their clocks.
const readings = 50

// MachineClock is read once in a process, so that what is left of the error is
// the same for all that it talks to.
var MachineClock = sync.OnceValue(func() (best Clock) {
	closest := int64(-1)
	for range readings {
		before := Now()
		now := time.Now()
		after := Now()
		if gap := after - before; closest < 0 || gap < closest {
			closest, best = gap, Clock{base: now, at: before + gap/2}
		}
	}
	return best
})

// Now is what it shows.
func (c Clock) Now() int64 { return c.at + int64(time.Since(c.base)) }

// Zero is the time at which it stood at zero.
func (c Clock) Zero() time.Time { return c.base.Add(-time.Duration(c.at)) }

// Of is what it showed at t, a time that this process has read.
func (c Clock) Of(t time.Time) int64 { return c.at + int64(t.Sub(c.base)) }

// Sleep waits for d, and returns false when ctx ends before. It returns at once
// when d is not above 0.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
