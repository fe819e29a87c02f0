package core

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bootTime reads CLOCK_BOOTTIME, which goes on while the machine is suspended
// (clock_gettime(2)). It returns false where a sandbox does not allow that clock.
func bootTime() (time.Duration, bool) {
	var ts unix.Timespec
	// unix.ClockGettime is not used, because it tells the Go runtime that the call might block, and
	// the runtime may then wake a thread. An idle process would do that at every look at a lease.
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}
