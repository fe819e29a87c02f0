//go:build !linux

package plugin

import (
	"os"
	"syscall"
)

// wait waits until p ends, and reaps p. It does not kill p's process group, whose number may belong
// to a new group by then. A plugin that is left in p's group ends by itself.
func (p *osProcess) wait() {
	_ = p.cmd.Wait() // see status
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
}

func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
