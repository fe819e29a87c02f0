package serve

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// The kernel closes a dying host's descriptors before it gives its children a
// new parent. confirmFor is how long we look for the new parent after a sign
// of death, and confirmEvery how often; after that a look every slowEvery is
// what remains of the lifeline.
const (
	confirmFor   = 2 * time.Second
	confirmEvery = 200 * time.Microsecond
	slowEvery    = 250 * time.Millisecond
)

// lifeline tells whether the host lives.
type lifeline struct {
	pipe   *os.File
	parent int // our parent process at start
	host   int // what the host says is its process id; 0 when it says nothing
	log    *slog.Logger
}

func openLifeline(log *slog.Logger) (*lifeline, error) {
	l := &lifeline{parent: os.Getppid(), log: log}
	fd, err := strconv.Atoi(os.Getenv(wire.EnvLifeline))
	if err != nil {
		return nil, fmt.Errorf("%s is not the number of a descriptor", wire.EnvLifeline)
	}
	l.host, _ = strconv.Atoi(os.Getenv(wire.EnvHostPid))
	l.pipe = os.NewFile(uintptr(fd), "lifeline")
	if l.pipe == nil {
		return nil, fmt.Errorf("descriptor %d is not open", fd)
	}
	return l, nil
}

// watch calls died once, when the host is proven dead.
func (l *lifeline) watch(died func()) {
	// Nobody ever writes to the pipe: reading returns when its other end is gone.
	_, _ = io.Copy(io.Discard, l.pipe)
	if l.confirm() {
		died()
		return
	}
	l.log.Warn("lifeline ended, but the host lives; watching its process id")
	for !l.hostGone() {
		time.Sleep(slowEvery)
	}
	died()
}

// confirm looks for the proof that a sign of death asks for. A closed
// descriptor alone is none: the host may have closed it by mistake.
func (l *lifeline) confirm() bool {
	for end := time.Now().Add(confirmFor); time.Now().Before(end); time.Sleep(confirmEvery) {
		if l.hostGone() {
			return true
		}
	}
	return false
}

// hostGone reports that our parent has changed, or, where something stood
// between the host and us from the start (a wrapper script, or a host that
// died before our first look), that no process has the host's id.
func (l *lifeline) hostGone() bool {
	if os.Getppid() != l.parent {
		return true
	}
	return l.host != 0 && l.host != l.parent && syscall.Kill(l.host, 0) == syscall.ESRCH
}
