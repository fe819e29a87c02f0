package plugin

import (
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/lockbench/lockbench/core/plugin/internal/frame"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
	"github.com/lockbench/lockbench/internal/proc"
)

// servedBy takes note of the process at the other end of conn. Where we have
// started a wrapper it is another one, which may have left the process group: a
// session of its own is what an init gives to its child.
func (p *osProcess) servedBy(conn net.Conn) {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return
	}
	pid := frame.Peer(c)
	p.mu.Lock()
	defer p.mu.Unlock()
	if pid == 0 || pid == p.id || p.behind != nil {
		return
	}
	behind, err := os.FindProcess(pid)
	if err != nil {
		return
	}
	// Without a handle its number may be another's when we use it; and only what
	// was started for us is ours to end.
	if behind.WithHandle(func(uintptr) {}) != nil || !p.startedForUs(pid) {
		_ = behind.Release() // it does not fail
		return
	}
	if p.behind = behind; p.killed || p.reaped {
		p.end()
	}
	if p.reaped {
		p.forgetBehind()
	}
}

// forgetBehind lets go of what has been ended. The caller holds mu.
func (p *osProcess) forgetBehind() {
	if p.behind != nil {
		_ = p.behind.Release() // it does not fail
		p.behind = nil
	}
}

// startedForUs reports whether a process has our socket directory in its
// environment, which no other process has but what this one has started.
func (p *osProcess) startedForUs(pid int) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && strings.Contains("\x00"+string(env), "\x00"+wire.EnvDir+"="+p.dir.path+"\x00")
}

// end ends all processes of the plugin. The caller holds mu.
func (p *osProcess) end() {
	if p.id != 0 && !p.reaped {
		killGroup(p.cmd.Process)
	}
	if p.behind != nil {
		_ = p.behind.Kill() // it fails only when that has ended
	}
}

// stopped reports whether a signal has stopped the plugin, or its wrapper.
func (p *osProcess) stopped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return isStopped(p.id) || p.behind != nil && isStopped(p.behind.Pid)
}

// isStopped reports whether a signal has stopped the process.
func isStopped(pid int) bool {
	s, ok := proc.Of(pid)
	return ok && s.Stopped()
}
