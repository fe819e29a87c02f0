package serve

import (
	"cmp"
	"os"

	"golang.org/x/sys/unix"
)

// openPidfd returns a descriptor that becomes readable when all threads of the process pid have
// ended (see pidfd_open(2)). It returns nil if there is no such process, if Linux is older than
// 5.3, or if a sandbox forbids the call.
func openPidfd(pid int) *os.File {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil
	}
	_ = unix.SetNonblock(fd, true) // so that no thread blocks in a read
	return os.NewFile(uintptr(fd), "host")
}

// awaitPidfd waits until the process of the pidfd f has ended, without occupying a thread.
func awaitPidfd(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Read(func(fd uintptr) bool {
		events := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(events, 0)
		if err != nil && err != unix.EINTR && err != unix.EAGAIN {
			failed = err
		}
		return n > 0 || failed != nil
	})
	return cmp.Or(err, failed)
}
