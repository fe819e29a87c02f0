package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// MachineTime is the time on the machine's monotonic clock in nanoseconds: the
// same for all its processes, and blind to steps of the wall clock
// (clock_gettime(2)).
func MachineTime() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // no system that Go runs on is without it
	}
	return t.Nano()
}

// Clock reads the time since the start of a run in nanoseconds. It is
// monotonic: steps of the wall clock do not show.
type Clock struct{ start time.Time }

// NewClock returns a clock that stands at zero now.
func NewClock() Clock { return Clock{start: time.Now()} }

// ClockFrom returns a clock that stands at zero at start, which is a time that
// this process has read, or has reckoned from one.
func ClockFrom(start time.Time) Clock { return Clock{start: start} }

// Now is the time since the start.
func (c Clock) Now() int64 { return int64(time.Since(c.start)) }

// Started is the wall time of zero.
func (c Clock) Started() time.Time { return c.start }
