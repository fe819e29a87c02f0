package redisnode

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot reads a monotonic clock. If the system has CLOCK_BOOTTIME, the clock also runs while
// the machine is suspended; see clock_gettime(2).
func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Since(started)
	}
	return time.Duration(ts.Nano())
}
