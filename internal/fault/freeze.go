package fault

import (
	"fmt"
	"syscall"

	"github.com/lockbench/lockbench/internal/proc"
)

// Freeze sends SIGSTOP to one process and returns when it has stopped. Its
// connections stay open and nobody is told, as with a long pause of a garbage
// collector or a virtual machine. It returns an error if there is no such
// process.
func Freeze(pid int) error {
	if err := proc.Freeze(pid); err != nil {
		return fmt.Errorf("fault: freeze %d: %w", pid, err)
	}
	return nil
}

// Resume lets a frozen process go on. It returns an error if there is no such
// process; resuming one that runs is harmless.
func Resume(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		return fmt.Errorf("fault: resume %d: %w", pid, err)
	}
	return until("resume", pid, func(state string) bool { return state != "T" })
}
