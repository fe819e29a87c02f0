package serve

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// refusePrivileges makes this a process that can never gain privileges, by
// no set-user-ID program and no file capability (prctl(2),
// PR_SET_NO_NEW_PRIVS). The setting belongs to a thread. With cgo, Go cannot
// reach all threads: then one thread executes this program again, which ends
// the others and keeps that thread's setting. Where a sandbox forbids the
// call the plugin runs all the same.
func refusePrivileges() {
	if set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || set == 1 {
		return
	}
	_, _, errno := syscall.AllThreadsSyscall6(syscall.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)
	if errno != syscall.ENOTSUP {
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == nil {
		// Exec returns only if there is no /proc.
		_ = syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	}
}
