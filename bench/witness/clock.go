package witness

import "golang.org/x/sys/unix"

// Now is the time on the machine's monotonic clock in nanoseconds: the same
// for all its processes, and blind to steps of the wall clock.
func Now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // no system that Go runs on is without it
	}
	return t.Nano()
}
