package serve

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"syscall"

	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// lifeline reports the death of the host, and that the host has let go of us.
type lifeline struct {
	pipe    *os.File
	parent  int   // our parent process at start: the host, or a wrapper
	hostPid int   // what the host says is its process id; 0 when it says nothing
	host    *host // nil when no such process can be seen from here
	ended   chan struct{}
}

func openLifeline(log *slog.Logger) (*lifeline, error) {
	l := &lifeline{parent: os.Getppid(), ended: make(chan struct{})}
	fd, err := strconv.Atoi(os.Getenv(wire.EnvLifeline))
	if err != nil {
		return nil, fmt.Errorf("%s is not the number of a descriptor", wire.EnvLifeline)
	}
	// Neither a thread that waits, nor a child that has it too.
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	syscall.CloseOnExec(fd)
	l.pipe = os.NewFile(uintptr(fd), "lifeline")
	l.hostPid, _ = strconv.Atoi(os.Getenv(wire.EnvHostPid))
	if l.host, err = findHost(l.hostPid, os.Getenv(wire.EnvHostStart)); err != nil {
		log.Warn("host is out of sight: when it dies, its locks are left to their TTL", "err", err)
	}
	return l, nil
}

// watch calls died once, when the host is proven dead, and letGo once, when the
// pipe has ended. That alone is no proof of death, and neither is a new parent
// of ours: the host may have closed the pipe, given us up or executed itself
// anew, and what died may be a wrapper between the host and us.
func (l *lifeline) watch(died, letGo func()) {
	go func() {
		// Nobody ever writes to the pipe: reading returns when its other end is gone.
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
