package serve

import (
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// refusePrivileges sets PR_SET_NO_NEW_PRIVS, see prctl(2). After that, this process cannot
// gain privileges by executing a set-user-ID program or one with file capabilities. Each
// thread has its own setting, and in a program with cgo, Go cannot change it for all threads.
// In that case, one thread changes its own setting and executes this program again, which ends
// all other threads. If a sandbox forbids prctl, the plugin runs without the setting.
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
		// Exec returns only if it fails, for example without /proc.
		_ = syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	}
}
