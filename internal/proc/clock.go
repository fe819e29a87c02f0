package proc

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time of the machine's monotonic clock in nanoseconds. All processes of the
// machine share this clock, and setting the wall clock does not change it (clock_gettime(2)).
func Now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // every system that Go runs on has this clock
	}
	return t.Nano()
}

// Clock converts a time.Time of this process to nanoseconds of another clock. The other clock is
// the machine's clock, which [Now] reads, or a clock that starts at a given time. Setting the wall
// clock does not change the result.
type Clock struct {
	base time.Time
	at   int64 // the clock's value at base
}

// NewClock returns a clock that shows 0 now.
func NewClock() Clock { return ClockFrom(time.Now()) }

// ClockFrom returns a clock that showed 0 at the time in parameter zero. That time must come from
// time.Now of this process, or be the sum of such a time and a duration.
func ClockFrom(zero time.Time) Clock { return Clock{base: zero} }

// readings is the number of times that MachineClock reads the machine's clock and Go's clock
// together. It uses the fastest pair, because a pause between the two readings makes the result
// wrong. With a wrong result, two holders in different processes could seem to overlap.
const readings = 50

// MachineClock returns the machine's clock, which [Now] reads. Each process computes
// it only once, so that all times of the process have the same small error.
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

func (c Clock) Now() int64 { return c.at + int64(time.Since(c.base)) }

// Zero is the time at which the clock showed 0.
func (c Clock) Zero() time.Time { return c.base.Add(-time.Duration(c.at)) }

// Of returns the clock's value at the time t, which must come from time.Now of this process.
func (c Clock) Of(t time.Time) int64 { return c.at + int64(t.Sub(c.base)) }

// Sleep waits for the time d. It returns false if ctx ends first. It waits only if d is positive.
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
