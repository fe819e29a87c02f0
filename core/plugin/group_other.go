//go:build !linux

package plugin

import (
	"os"
	"syscall"
)

// wait waits for the process, which leads a group. Note: this system cannot
// wait without giving the number away. The rest of the group ends by itself,
// as a plugin does that no host can reach.
func (p *osProcess) wait() {
	_ = p.cmd.Wait() // see status
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
}

// killGroup ends p and the process group that it leads.
func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
