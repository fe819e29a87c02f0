package fault

import (
	"fmt"
	"syscall"
)

// Kill sends SIGKILL to one process and returns when the kernel has ended it:
// it is gone or a zombie that its parent has yet to wait for. It returns an
// error if there is no such process.
func Kill(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("fault: kill %d: %w", pid, err)
	}
	return until("kill", pid, func(state string) bool { return state == "" || state == "Z" || state == "X" })
}
