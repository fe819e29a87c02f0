package serve

import (
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// closeInherited closes the file descriptors that this process got from its host, except the first
// three and the lifeline. Libraries in the host may open files without FD_CLOEXEC. If, for example,
// the plugin of a dead host kept the host's listening socket open, no new host could use the
// socket's port. Descriptors that this process or its Go runtime has opened have FD_CLOEXEC, so
// closeInherited skips them.
func closeInherited() {
	dir := "/dev/fd"
	if runtime.GOOS == "linux" {
		dir = "/proc/self/fd"
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return // the descriptors stay open: no other directory lists them
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name.Name())
		if err != nil || fd <= int(os.Stderr.Fd()) || name.Name() == os.Getenv(wire.EnvLifeline) {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = syscall.Close(fd)
		}
	}
}
