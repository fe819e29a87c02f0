//go:build !linux

package plugin

import (
	"os"
	"syscall"
)

// wait waits until the process p ends. Note: this system cannot wait without reaping p.
// Another process group may then get the number of the group that p leads, so p's group is
// not killed. A plugin in the group ends by itself, because no host can reach it.
func (p *osProcess) wait() {
	_ = p.cmd.Wait() // see status
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
}

func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
