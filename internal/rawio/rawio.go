// Package rawio reads and writes non-blocking sockets without announcing the
// system calls to the Go runtime, because these calls never block. For an announced
// call the runtime prepares for a blocked thread. After an idle moment it wakes its
// monitor thread for that, which costs as much as the whole call.
package rawio

import (
	"io"
	"syscall"
)

// Reader reads from a socket. It waits for data only in Go's network poller.
// One goroutine at a time may use it.
type Reader struct {
	conn    syscall.RawConn
	p       []byte
	n       int
	err     error
	attempt func(fd uintptr) (done bool)
}

// NewReader returns a Reader of conn. The caller still closes conn.
func NewReader(conn syscall.Conn) (*Reader, error) {
	raw, err := conn.SyscallConn()
	r := &Reader{conn: raw}
	r.attempt = func(fd uintptr) bool {
		r.n, r.err = Read(fd, r.p)
		return r.err != syscall.EAGAIN
	}
	return r, err
}

// Read implements io.Reader. An error of the system call is a syscall.Errno. An
// error of the connection, such as an expired deadline, is the error of package net.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	r.p, r.n, r.err = p, 0, nil
	err := r.conn.Read(r.attempt)
	r.p = nil
	if err == nil {
		err = r.err
	}
	if r.n == 0 && err == nil {
		err = io.EOF
	}
	return r.n, err
}
