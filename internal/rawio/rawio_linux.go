package rawio

import (
	"syscall"
	"unsafe"
)

// Read reads from a non-blocking socket. It returns EAGAIN if no data have arrived.
func Read(fd uintptr, p []byte) (int, error) { return call(syscall.SYS_READ, fd, p, 0) }

// Write writes as many bytes as fit into the socket's buffer. It never
// blocks, even on a blocking socket. It returns EAGAIN if the buffer is full.
func Write(fd uintptr, p []byte) (int, error) {
	return call(syscall.SYS_SENDTO, fd, p, syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL)
}

// Silent reports whether the socket has no unread data and the peer has not closed
// the connection.
func Silent(fd uintptr) bool {
	var b [1]byte
	_, err := call(syscall.SYS_RECVFROM, fd, b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return err == syscall.EAGAIN
}

func call(trap, fd uintptr, p []byte, flags uintptr) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall6(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), flags, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
			continue
		}
		return 0, errno
	}
}
