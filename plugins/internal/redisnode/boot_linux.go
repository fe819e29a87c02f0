package redisnode

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot reads a clock that never goes back. It counts time while the machine is
// suspended, where the system has such a clock (clock_gettime(2), CLOCK_BOOTTIME).
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Since(started)
	}
	return time.Duration(ts.Nano())
}
