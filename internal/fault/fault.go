// Package fault harms processes from outside, as operating systems and
// operators do: one file for each kind of harm.
package fault

import (
	"fmt"
	"runtime"
	"time"

	"github.com/lockbench/lockbench/internal/proc"
)

// signalTime bounds how long a harm waits for the kernel to report it.
const signalTime = 2 * time.Second

// state returns the kernel's one-letter state of a process ("R", "S", "T", "Z"
// ...), or "" when the process is gone or the system has no /proc.
func state(pid int) string {
	s, ok := proc.Of(pid)
	if !ok {
		return ""
	}
	return string(s.State)
}

// until polls until done reports true. On systems without /proc there is
// nothing to read, and the signal's delivery is taken for granted.
func until(what string, pid int, done func(state string) bool) error {
	if runtime.GOOS != "linux" {
		return nil
	}
	deadline := time.Now().Add(signalTime)
	for !done(state(pid)) {
		if time.Now().After(deadline) {
			return fmt.Errorf("fault: %s %d: still in state %q after %v", what, pid, state(pid), signalTime)
		}
		time.Sleep(100 * time.Microsecond)
	}
	return nil
}
