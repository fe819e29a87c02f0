//go:build !linux

package frame

import (
	"net"
	"syscall"
)

// rawRead and rawWrite are read(2) and write(2) on a socket that does not block.
func rawRead(fd uintptr, p []byte) (int, error)  { return retry(syscall.Read, fd, p) }
func rawWrite(fd uintptr, p []byte) (int, error) { return retry(syscall.Write, fd, p) }

func retry(do func(int, []byte) (int, error), fd uintptr, p []byte) (int, error) {
	for {
		n, err := do(int(fd), p)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

// newWriteEnd takes conn over.
func newWriteEnd(conn *net.UnixConn) (writeEnd, error) { return conn, nil }
