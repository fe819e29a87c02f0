//go:build !linux

package plugin

import (
	"os"
	"syscall"
)

// wait waits until the process ends, which leads a process group. Note: this system cannot
// wait without reaping the process. Another group may then get the group's number, so the
// group is not killed. A plugin in the group ends by itself, because no host can reach it.
func (p *osProcess) wait() {
	_ = p.cmd.Wait() // see status
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
}

// killGroup kills the process p and the process group that it leads.
func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
