package serve

import (
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// shedInherited drops what a plugin inherits and must not keep: its host's
// open descriptors, and the chance of new privileges. It may start the
// program anew in its place, as the same process.
func shedInherited() {
	closeInherited()
	refusePrivileges()
}

// closeInherited closes the descriptors that this process was started with,
// other than the first three and the lifeline. A library in the host may have
// opened them without FD_CLOEXEC: a listening socket would stay open, and its
// port taken, while the plugin outlives the host. Descriptors that this
// process itself has opened so far, the Go runtime's included, have the flag.
func closeInherited() {
	dir := "/dev/fd"
	if runtime.GOOS == "linux" {
		dir = "/proc/self/fd"
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return // then they stay open; there is no other list of them
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name.Name())
		if err != nil || fd <= int(os.Stderr.Fd()) || name.Name() == os.Getenv(wire.EnvLifeline) {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = syscall.Close(fd) // an error cannot be handled
		}
	}
}
