package core

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bootTime reads CLOCK_BOOTTIME, which goes on while the machine is suspended
// (clock_gettime(2)). It fails where a sandbox does not allow that clock.
func bootTime() (time.Duration, bool) {
	var ts unix.Timespec
	// unix.ClockGettime is not used: it announces a call that might block to the Go runtime, which
	// may then wake a thread. After an idle moment that would happen at every look at a lease.
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}
