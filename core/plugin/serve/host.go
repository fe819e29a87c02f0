package serve

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/internal/proc"
)

// Where the system does not report the end of a process that is no child, we
// look: every confirmEvery for confirmFor after the end of the pipe, because the
// kernel closes the descriptors of a dying process before it is dead, and every
// slowEvery later.
const (
	confirmFor   = 2 * time.Second
	confirmEvery = 200 * time.Microsecond
	slowEvery    = 250 * time.Millisecond
)

// host is the process that has started us, itself or by a wrapper.
type host struct {
	pid   int
	start string   // as proc.Stat has it; "" on systems without
	pidfd *os.File // nil on systems without
}

// findHost finds the process that has started us. It fails where the process of
// that id is another one, or none: the host may be in another PID namespace.
func findHost(pid int, start string) (*host, error) {
	if pid <= 0 {
		return nil, errors.New("it has not given its process id")
	}
	h := &host{pid: pid, start: start, pidfd: openPidfd(pid)}
	if h.pidfd == nil && !h.exists() {
		return nil, fmt.Errorf("there is no process %d", pid)
	}
	// After the opening: what has the right start now was the host then, too.
	if start != "" && !h.same() {
		if h.pidfd != nil {
			h.pidfd.Close()
		}
		return nil, fmt.Errorf("process %d is not the one that started at %s", pid, start)
	}
	return h, nil
}

// same reports whether the process of the host's id has started when the host
// has. Note: a wrapper can leave us in a PID namespace of our own with the /proc
// of another, whose numbers say nothing here.
func (h *host) same() bool {
	self, err := os.Readlink("/proc/self")
	s, ok := proc.Of(h.pid)
	return err == nil && self == strconv.Itoa(os.Getpid()) && ok && s.Start == h.start
}

// await returns when the host is dead. ended is closed when that may be near.
func (h *host) await(ended <-chan struct{}) {
	if h.pidfd != nil && awaitPidfd(h.pidfd) == nil {
		return
	}
	<-ended
	for end := time.Now().Add(confirmFor); time.Now().Before(end); time.Sleep(confirmEvery) {
		if h.dead() {
			return
		}
	}
	for !h.dead() {
		time.Sleep(slowEvery)
	}
}

// dead reports whether no process has the host's id and start. A zombie is dead.
func (h *host) dead() bool {
	if h.start == "" {
		return !h.exists()
	}
	s, ok := proc.Of(h.pid)
	return !h.exists() || ok && (s.Start != h.start || s.Ended())
}

func (h *host) exists() bool { return !errors.Is(syscall.Kill(h.pid, 0), syscall.ESRCH) }
