//go:build !linux

package plugin

import (
	"os"
	"syscall"
)

// wait waits until the process p ends. This system cannot wait without reaping p, and the number of
// p's group may then be used again. So the group is not killed. A plugin in it ends by itself.
func (p *osProcess) wait() {
	_ = p.cmd.Wait() // see status
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
}

func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
