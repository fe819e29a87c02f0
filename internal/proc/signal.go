package proc

import (
	"fmt"
	"syscall"
	"time"
)

// stopTime bounds how long the kernel may need to report what a signal has done.
const stopTime = 10 * time.Second

// Freeze sends SIGSTOP to one process and returns when it has stopped, or ended
// meanwhile: its threads run on until each of them looks. Its connections stay open
// and nobody is told, as with a long pause of a garbage collector or a container.
// The errors of Freeze, Resume and Kill wrap syscall.ESRCH if there is no such
// process.
func Freeze(pid int) error {
	return signal("freeze", pid, syscall.SIGSTOP, func(s Stat) bool { return s.Stopped() || s.Ended() })
}

// Resume lets a frozen process go on; resuming one that runs is harmless.
func Resume(pid int) error {
	return signal("resume", pid, syscall.SIGCONT, func(s Stat) bool { return !s.Stopped() })
}

// Kill sends SIGKILL to one process and returns when the kernel has ended it:
// it is gone or a zombie that its parent has yet to wait for.
func Kill(pid int) error { return signal("kill", pid, syscall.SIGKILL, Stat.Ended) }

// signal sends a signal and returns when that is done, or the process is gone.
// On systems without /proc there is nothing to read, and the signal's delivery is
// taken for granted.
func signal(what string, pid int, s syscall.Signal, done func(Stat) bool) error {
	if err := syscall.Kill(pid, s); err != nil {
		return fmt.Errorf("%s %d: %w", what, pid, err)
	}
	for deadline := time.Now().Add(stopTime); ; time.Sleep(100 * time.Microsecond) {
		now, known := Of(pid)
		if !known || done(now) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s %d: still in state %c after %v", what, pid, now.State, stopTime)
		}
	}
}
