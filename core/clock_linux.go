package core

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bootTime reads CLOCK_BOOTTIME (see clock_gettime(2)), which goes on while the machine is
// suspended. It returns false if a sandbox forbids this clock.
func bootTime() (time.Duration, bool) {
	var ts unix.Timespec
	// unix.ClockGettime is not used, because it tells the Go runtime that the call may block. The
	// runtime might then wake a thread whenever an idle process checks a lease.
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}
