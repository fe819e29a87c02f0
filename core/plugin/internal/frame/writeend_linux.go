package frame

import (
	"cmp"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// unpolled is a socket that Go's poller does not watch.
type unpolled struct{ *os.File }

// newWriteEnd returns the write end of conn, and closes conn. Go's poller does not
// watch the write end, because the poller would be woken each time the peer reads.
func newWriteEnd(conn *net.UnixConn) (writeEnd, error) {
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	var dupErr error
	err = raw.Control(func(old uintptr) { fd, dupErr = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) })
	if err = cmp.Or(err, dupErr); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	// Go's poller would watch an os.File whose descriptor is in non-blocking mode.
	if err := syscall.SetNonblock(fd, false); err != nil {
		_ = syscall.Close(fd) // no error matters: the descriptor was never used
		return nil, os.NewSyscallError("fcntl", err)
	}
	return unpolled{os.NewFile(uintptr(fd), "data socket")}, nil
}

// Close closes the socket. Close also ends a Write that waits.
func (u unpolled) Close() error {
	if raw, err := u.SyscallConn(); err == nil {
		// Shutdown fails only if the peer is gone, and then a Write ends too.
		_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
	}
	return u.File.Close()
}
