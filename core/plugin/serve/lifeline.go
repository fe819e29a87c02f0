package serve

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/core/plugin/internal/wire"
	"github.com/lockbench/lockbench/internal/proc"
)

// lifeline reports the death of the host, and that the host has let go of this plugin.
type lifeline struct {
	pipe    *os.File
	parent  int   // our parent process at start: the host, or a wrapper
	hostPid int   // process id that the host states; 0 when it states none
	host    *host // nil when no such process can be seen from here
	ended   chan struct{}
}

func openLifeline(log *slog.Logger) (*lifeline, error) {
	l := &lifeline{parent: os.Getppid(), ended: make(chan struct{})}
	fd, err := strconv.Atoi(os.Getenv(wire.EnvLifeline))
	if err != nil {
		return nil, fmt.Errorf("%s is not the number of a descriptor", wire.EnvLifeline)
	}
	// In this mode no thread waits on the pipe, and no child inherits it.
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	syscall.CloseOnExec(fd)
	l.pipe = os.NewFile(uintptr(fd), "lifeline")
	l.hostPid, _ = strconv.Atoi(os.Getenv(wire.EnvHostPid))
	if l.host, err = findHost(l.hostPid, os.Getenv(wire.EnvHostStart)); err != nil {
		log.Warn("host process cannot be watched: when it dies, its locks are free after their TTL", "err", err)
	}
	return l, nil
}

// watch calls died once, when the host is proven dead, and letGo once, when the pipe
// has ended. The end of the pipe alone is no proof of death, and neither is a new
// parent of this process. The host may have closed the pipe, given this plugin up or
// executed itself anew. The dead process may be a wrapper between host and plugin.
func (l *lifeline) watch(died, letGo func()) {
	go func() {
		// No process ever writes to the pipe: reading returns when its other end is gone.
		_, _ = io.Copy(io.Discard, l.pipe)
		close(l.ended)
		letGo()
	}()
	if l.host == nil {
		return
	}
	l.host.await(l.ended)
	died()
}

// On a system that does not report the end of a process that is no child,
// the plugin looks. It does so every confirmEvery for confirmFor after the
// end of the pipe, because the kernel closes the descriptors of a dying
// process before it is dead, and every slowEvery later.
const (
	confirmFor   = 2 * time.Second
	confirmEvery = 200 * time.Microsecond
	slowEvery    = 250 * time.Millisecond
)

// host is the process that has started this one, itself or by a wrapper.
type host struct {
	pid   int
	start string   // as proc.Stat has it; "" on systems without
	pidfd *os.File // nil on systems without
}

// findHost finds the process that has started this one. It fails if that id
// belongs to another process or none: the host may be in another PID namespace.
func findHost(pid int, start string) (*host, error) {
	if pid <= 0 {
		return nil, errors.New("it has not given its process id")
	}
	h := &host{pid: pid, start: start, pidfd: openPidfd(pid)}
	if h.pidfd == nil && !h.exists() {
		return nil, fmt.Errorf("there is no process %d", pid)
	}
	// This check follows the opening: a process that has the right start now was the host then, too.
	if start != "" && !h.same() {
		if h.pidfd != nil {
			h.pidfd.Close()
		}
		return nil, fmt.Errorf("process %d is not the one that started at %s", pid, start)
	}
	return h, nil
}

// same reports whether the process with the host's id started when the host
// did. Note: a wrapper can leave this process in a separate PID namespace
// with the /proc of another, whose numbers say nothing here.
func (h *host) same() bool {
	self, err := os.Readlink("/proc/self")
	s, ok := proc.Of(h.pid)
	return err == nil && self == strconv.Itoa(os.Getpid()) && ok && s.Start == h.start
}

// await returns when the host is dead. ended is closed when the host may be about to die.
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

// aloneFor is how long a plugin stays that no host can reach.
const aloneFor = 5 * time.Second

// sessions counts the heartbeat streams. A host, even a frozen one, keeps
// one open for as long as it has its plugin. If no stream has been open for
// aloneFor since the last one ended, or since the host let go of this plugin
// without one, no host will ever come, and alone is called.
type sessions struct {
	alone func()

	mu    sync.Mutex
	open  int
	timer *time.Timer
}

func (s *sessions) began() (ended func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	return s.ended
}

func (s *sessions) ended() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	s.wait()
}

// letGo notes that the host opens no more streams.
func (s *sessions) letGo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wait()
}

// wait starts the wait of aloneFor when no stream is open. The caller holds mu.
func (s *sessions) wait() {
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.open == 0 {
		s.timer = time.AfterFunc(aloneFor, s.over)
	}
}

func (s *sessions) over() {
	s.mu.Lock()
	open := s.open
	s.mu.Unlock()
	if open == 0 {
		s.alone()
	}
}
