// Package inject breaks processes, connections and the clocks of servers from
// outside, as operating systems, networks and operators do, and heals them. It
// knows no store.
package inject

import (
	"fmt"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/internal/proc"
)

// signalTime bounds how long a harm waits for the kernel to report it.
const signalTime = 2 * time.Second

// Freeze sends SIGSTOP to one process and returns when it has stopped. Its
// connections stay open and nobody is told, as with a long pause of a garbage
// collector or a container. It returns an error if there is no such
// process.
func Freeze(pid int) error {
	if err := proc.Freeze(pid); err != nil {
		return fmt.Errorf("inject: freeze %d: %w", pid, err)
	}
	return nil
}

// Resume lets a frozen process go on. It returns an error if there is no such
// process; resuming one that runs is harmless.
func Resume(pid int) error {
	return signal("resume", pid, syscall.SIGCONT, proc.Stat.Stopped)
}

// Kill sends SIGKILL to one process and returns when the kernel has ended it:
// it is gone or a zombie that its parent has yet to wait for. It returns an
// error if there is no such process.
func Kill(pid int) error {
	return signal("kill", pid, syscall.SIGKILL, func(s proc.Stat) bool { return !s.Ended() })
}

// signal sends a signal and returns when the process is not what it was before.
// On systems without /proc there is nothing to read, and the signal's delivery is
// taken for granted.
func signal(what string, pid int, s syscall.Signal, before func(proc.Stat) bool) error {
	if err := syscall.Kill(pid, s); err != nil {
		return fmt.Errorf("inject: %s %d: %w", what, pid, err)
	}
	for deadline := time.Now().Add(signalTime); ; time.Sleep(100 * time.Microsecond) {
		now, known := proc.Of(pid)
		if !known || !before(now) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("inject: %s %d: still in state %c after %v", what, pid, now.State, signalTime)
		}
	}
}
