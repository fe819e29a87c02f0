package plugintest

import (
	"syscall"

	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/internal/proc"
)

// Running reports whether process pid runs. One that has ended and waits for
// its parent to look does not: not every init process looks.
func Running(pid int) bool { return proc.Running(pid) }

// Freeze stops process pid with SIGSTOP and returns when it has stopped.
func Freeze(pid int) error { return proc.Freeze(pid) }

// process is a process that a case may harm.
type process struct{ pid int }

// Pid implements drivertest.Process.
func (p process) Pid() int { return p.pid }

// Kill implements drivertest.Process.
func (p process) Kill(t drivertest.T) {
	t.Helper()
	p.harm(t, "SIGKILL", func(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) })
}

// Freeze implements drivertest.Process.
func (p process) Freeze(t drivertest.T) {
	t.Helper()
	p.harm(t, "SIGSTOP", Freeze)
}

// Resume implements drivertest.Process.
func (p process) Resume(t drivertest.T) {
	t.Helper()
	p.harm(t, "SIGCONT", func(pid int) error { return syscall.Kill(pid, syscall.SIGCONT) })
}

func (p process) harm(t drivertest.T, signal string, send func(pid int) error) {
	t.Helper()
	if p.pid <= 0 { // a signal to 0 would go to our own group
		t.Fatalf("%s to a process that is gone", signal)
	}
	if err := send(p.pid); err != nil {
		t.Fatalf("%s to process %d: %v", signal, p.pid, err)
	}
}
