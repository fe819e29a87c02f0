package serve

import (
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// shedInherited closes the open descriptors that this plugin inherited from
// its host, and gives up the ability to gain privileges. For that it may
// execute the program again in the same process.
func shedInherited() {
	closeInherited()
	refusePrivileges()
}

// closeInherited closes the descriptors that this process was started with, except the
// first three and the lifeline. A library in the host may have opened such descriptors
// without FD_CLOEXEC. If a listening socket of the host stayed open, for example, its port
// would be taken while the plugin outlives the host. Descriptors that this process has
// opened itself, including those of the Go runtime, have FD_CLOEXEC and are not closed.
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
			_ = syscall.Close(fd) // if it fails, nothing can be done
		}
	}
}
