package host

import (
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// Surrounding is what an application may do to itself that is no harm to locks.
type Surrounding string

// The surroundings.
const (
	// BlockedLog blocks the logger and OnEvent, as a pipe that nobody reads.
	BlockedLog Surrounding = "blocked-log"
	// Reaper waits for every child of the process, as an init does.
	Reaper Surrounding = "reaper"
	// IgnoredChildren ignores SIGCHLD: the kernel waits for the children.
	IgnoredChildren Surrounding = "ignored-children"
)

// Surround begins or ends a surrounding. It returns at once.
func (p *Process) Surround(s Surrounding, on bool) error {
	return p.Send(order{Op: string(s), On: on})
}

// surround does so in the process.
func (a *agent) surround(s Surrounding, on bool) {
	switch s {
	case BlockedLog:
		a.log.block(on)
	case Reaper:
		a.reaping.Store(on)
		if on {
			go a.reap()
		}
	case IgnoredChildren:
		if on {
			signal.Ignore(syscall.SIGCHLD)
		} else {
			signal.Reset(syscall.SIGCHLD)
		}
	}
}

// reap takes the ends of all children, for as long as it is wanted.
func (a *agent) reap() {
	for a.reaping.Load() {
		var status syscall.WaitStatus
		if pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil); pid <= 0 || err != nil {
			time.Sleep(time.Millisecond)
		}
	}
}

// blocker is what a logger writes to, and an OnEvent, that can be blocked.
type blocker struct {
	gate    sync.RWMutex // locked while it is blocked
	blocked bool
}

// block is called by one goroutine.
func (g *blocker) block(on bool) {
	switch {
	case on && !g.blocked:
		g.gate.Lock()
	case !on && g.blocked:
		g.gate.Unlock()
	}
	g.blocked = on
}

// pass waits while it is blocked.
func (g *blocker) pass() {
	g.gate.RLock()
	defer g.gate.RUnlock()
}

// Write implements io.Writer.
func (g *blocker) Write(line []byte) (int, error) {
	g.pass()
	return len(line), nil
}
