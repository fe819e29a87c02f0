//go:build !linux

package plugin

import (
	"os"
	"syscall"
)

// wait waits until p ends. On this system, that also reaps p, and a new group may get the number of
// p's group. So wait does not kill p's group. A plugin in that group ends by itself.
func (p *osProcess) wait() {
	_ = p.cmd.Wait() // see status
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
}

func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
