package load

import "time"

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

// Of is what it showed at t, a time that this process has read.
func (c Clock) Of(t time.Time) int64 { return int64(t.Sub(c.start)) }

// Started is the wall time of zero.
func (c Clock) Started() time.Time { return c.start }
