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

// lifeline watches the host process and a pipe. The pipe ends when the host closes its end or dies.
type lifeline struct {
	pipe    *os.File
	parent  int   // id of the parent process at the start: the host, or a wrapper
	hostPid int   // the host's process id, passed by the host; 0 if it was not passed
	host    *host // nil if this process cannot see the process hostPid
	ended   chan struct{}
}

func openLifeline(log *slog.Logger) (*lifeline, error) {
	l := &lifeline{parent: os.Getppid(), ended: make(chan struct{})}
	fd, err := strconv.Atoi(os.Getenv(wire.EnvLifeline))
	if err != nil {
		return nil, fmt.Errorf("%s is not the number of a descriptor", wire.EnvLifeline)
	}
	// In non-blocking mode, a read of the pipe occupies no thread.
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

// watch calls the function died when the host is certainly dead, and the function letGo when the
// pipe has ended. The end of the pipe does not prove the host's death, because the host may have
// closed its end or called exec. A new parent process is no proof either, because a wrapper between
// host and plugin may have died.
func (l *lifeline) watch(died, letGo func()) {
	go func() {
		// The host never writes to the pipe, so the read lasts until the host's end is closed.
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

// If there is no pidfd, the plugin polls for the host's death after the pipe has ended. For
// confirmFor, it polls every confirmEvery, because the kernel closes a dying host's pipe shortly
// before the host is dead. After that, it polls every slowEvery.
const (
	confirmFor   = 2 * time.Second
	confirmEvery = 200 * time.Microsecond
	slowEvery    = 250 * time.Millisecond
)

// host is the process that has started this plugin, directly or through a wrapper.
type host struct {
	pid   int
	start string   // start time as in proc.Stat; "" if unknown
	pidfd *os.File // nil if the system has no pidfd
}

// findHost returns the host process. It fails if no process has this id and start time, for example
// because the host is in another PID namespace.
func findHost(pid int, start string) (*host, error) {
	if pid <= 0 {
		return nil, errors.New("it has not given its process id")
	}
	h := &host{pid: pid, start: start, pidfd: openPidfd(pid)}
	if h.pidfd == nil && !h.exists() {
		return nil, fmt.Errorf("there is no process %d", pid)
	}
	// Check the start time after openPidfd. Only such a check proves that the pidfd is the host's.
	if start != "" && !h.same() {
		if h.pidfd != nil {
			h.pidfd.Close()
		}
		return nil, fmt.Errorf("process %d is not the one that started at %s", pid, start)
	}
	return h, nil
}

// same reports whether the process with the host's id has the host's start time. It also checks
// that /proc/self is this process, because a wrapper can start this process in a new PID namespace
// with the old /proc.
func (h *host) same() bool {
	self, err := os.Readlink("/proc/self")
	s, ok := proc.Of(h.pid)
	return err == nil && self == strconv.Itoa(os.Getpid()) && ok && s.Start == h.start
}

// await returns when the host is dead. When the pipe ends, the caller must close the channel ended.
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

// dead reports whether the host is dead or a zombie. A process with the host's id but not the
// host's start time is not the host.
func (h *host) dead() bool {
	if h.start == "" {
		return !h.exists()
	}
	s, ok := proc.Of(h.pid)
	return !h.exists() || ok && (s.Start != h.start || s.Ended())
}

func (h *host) exists() bool { return !errors.Is(syscall.Kill(h.pid, 0), syscall.ESRCH) }

// aloneFor is how long a plugin keeps running without a connection to its host.
const aloneFor = 5 * time.Second

// sessions counts open heartbeat streams. A host keeps one stream open while it uses its plugin,
// even if the host is frozen. When a stream or the lifeline pipe ends, sessions waits for aloneFor.
// If no stream is open then, no host will connect any more, and sessions calls the function alone.
type sessions struct {
	alone func()

	mu    sync.Mutex
	open  int
	timer *time.Timer
}

func (s *sessions) began() (ended func()) {
	s.add(1)
	return func() { s.add(-1) }
}

// letGo must be called when the lifeline pipe has ended. From then on the host opens no new stream.
func (s *sessions) letGo() { s.add(0) }

// add changes the number of open streams by n, and sets the timer to aloneFor if none is open.
func (s *sessions) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open += n
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
