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

// lifeline detects that the host is dead, and that the host's end of the lifeline pipe is
// closed.
type lifeline struct {
	pipe    *os.File
	parent  int   // id of the parent process at the start: the host, or a wrapper
	hostPid int   // the host's process id, passed by the host; 0 if it was not passed
	host    *host // nil if the process hostPid is not visible here
	ended   chan struct{}
}

func openLifeline(log *slog.Logger) (*lifeline, error) {
	l := &lifeline{parent: os.Getppid(), ended: make(chan struct{})}
	fd, err := strconv.Atoi(os.Getenv(wire.EnvLifeline))
	if err != nil {
		return nil, fmt.Errorf("%s is not the number of a descriptor", wire.EnvLifeline)
	}
	// In non-blocking mode no thread waits in a read of the pipe. With CloseOnExec, no
	// child inherits the pipe.
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

// watch calls the function died once, when the host is certainly dead, and letGo once, when the
// pipe has ended. The end of the pipe alone does not prove that the host is dead: the host may
// have closed the pipe, given this plugin up, or executed itself again. A new parent of this
// process is no proof either, because a wrapper between host and plugin may have died instead.
func (l *lifeline) watch(died, letGo func()) {
	go func() {
		// No process writes to the pipe, so the read returns only when the other end is closed.
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

// If the system does not report the end of a process that is not a child, the plugin polls. After
// the end of the pipe it polls every confirmEvery for confirmFor, because the kernel closes the
// descriptors of a dying process before it is dead. Later it polls every slowEvery.
const (
	confirmFor   = 2 * time.Second
	confirmEvery = 200 * time.Microsecond
	slowEvery    = 250 * time.Millisecond
)

// host is the host's process. It has started this process, directly or through a wrapper.
type host struct {
	pid   int
	start string   // start time as in proc.Stat; "" if unknown
	pidfd *os.File // nil if the system has no pidfd
}

// findHost returns the host with process id pid and that start time. It returns an error if pid
// belongs to another process or to none, as when the host is in another PID namespace.
func findHost(pid int, start string) (*host, error) {
	if pid <= 0 {
		return nil, errors.New("it has not given its process id")
	}
	h := &host{pid: pid, start: start, pidfd: openPidfd(pid)}
	if h.pidfd == nil && !h.exists() {
		return nil, fmt.Errorf("there is no process %d", pid)
	}
	// This check must come after the pidfd was opened: then it proves that the pidfd is the host's.
	if start != "" && !h.same() {
		if h.pidfd != nil {
			h.pidfd.Close()
		}
		return nil, fmt.Errorf("process %d is not the one that started at %s", pid, start)
	}
	return h, nil
}

// same reports whether the process with the host's id started when the host
// did. Note: a wrapper can put this process into a new PID namespace but
// leave the /proc of the old one, whose process ids mean nothing here.
func (h *host) same() bool {
	self, err := os.Readlink("/proc/self")
	s, ok := proc.Of(h.pid)
	return err == nil && self == strconv.Itoa(os.Getpid()) && ok && s.Start == h.start
}

// await returns when the host is dead. ended must be closed when the lifeline pipe has ended.
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

// dead reports whether no process has the host's id and start time. A zombie counts as dead.
func (h *host) dead() bool {
	if h.start == "" {
		return !h.exists()
	}
	s, ok := proc.Of(h.pid)
	return !h.exists() || ok && (s.Start != h.start || s.Ended())
}

func (h *host) exists() bool { return !errors.Is(syscall.Kill(h.pid, 0), syscall.ESRCH) }

// aloneFor is how long a plugin goes on running when no host can reach it.
const aloneFor = 5 * time.Second

// sessions counts the open heartbeat streams. A host, even a frozen host, has one open as long as
// it uses its plugin. When a stream or the lifeline pipe has ended, and no stream has been open for
// aloneFor after that, no host will connect any more, and sessions calls the function alone.
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

// letGo must be called when the lifeline pipe has ended: the host then opens no more streams.
func (s *sessions) letGo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wait()
}

// wait starts the wait of aloneFor if no stream is open. The caller must hold mu.
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
