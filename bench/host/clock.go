package host

import (
	"time"

	"golang.org/x/sys/unix"
)

// clock reads the monotonic clock of the machine in nanoseconds, which is one
// for all its processes (clock_gettime(2)).
type clock struct {
	base time.Time
	at   int64 // what it shows at base
}

func newClock() (clock, error) {
	var ts unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return clock{base: time.Now(), at: ts.Nano()}, err
}

func (c clock) now() int64 { return c.of(time.Now()) }

// of is what it showed at t, a time that this process has read.
func (c clock) of(t time.Time) int64 { return c.at + int64(t.Sub(c.base)) }
