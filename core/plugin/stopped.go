package plugin

import "github.com/lockbench/lockbench/core/plugin/internal/proc"

// isStopped reports whether a signal has stopped the process.
func isStopped(pid int) bool {
	s, ok := proc.Of(pid)
	return ok && s.Stopped()
}
