package plugin

import (
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// startUnprivileged starts cmd as a process that can never gain privileges, by
// no set-user-ID program and no file capability (prctl(2), PR_SET_NO_NEW_PRIVS).
// A child takes this from the thread that starts it. That thread stays locked to
// its goroutine and ends with it, so that nothing else in this process is bound by it. Where a
// sandbox forbids the call the process is started all the same.
func startUnprivileged(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The main thread cannot end: keep it while another one is used.
			defer runtime.UnlockOSThread()
			started <- startUnprivileged(cmd)
			return
		}
		_ = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		started <- cmd.Start()
	}()
	return <-started
}
