//go:build !linux

package plugin

import (
	"os"
	"syscall"
)

// wait waits for the process, which leads a process group. Note: this system cannot
// wait without reaping, so the group's number may be reused and the group is not
// killed. The rest of it ends by itself, as any plugin does that no host can reach.
func (p *osProcess) wait() {
	_ = p.cmd.Wait() // see status
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
}

// killGroup kills p and the process group that p leads.
func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
