// Package rawio reads and writes non-blocking sockets by raw system calls, which the Go runtime
// does not notice. Before an ordinary system call, the runtime prepares for a blocked thread. After
// an idle moment, this preparation wakes the runtime's monitor thread and costs as much as the call
// itself. A call on a non-blocking socket never blocks, so the preparation is not needed.
package rawio

import (
	"io"
	"syscall"
)

// Reader reads from a socket. If no data have arrived, Reader waits in Go's network poller. Only
// one goroutine at a time may use a Reader.
type Reader struct {
	conn    syscall.RawConn
	p       []byte
	n       int
	err     error
	attempt func(fd uintptr) (done bool)
}

// NewReader returns a Reader of conn. The caller must still close conn.
func NewReader(conn syscall.Conn) (*Reader, error) {
	raw, err := conn.SyscallConn()
	r := &Reader{conn: raw}
	r.attempt = func(fd uintptr) bool {
		r.n, r.err = Read(fd, r.p)
		return r.err != syscall.EAGAIN
	}
	return r, err
}

// Read implements io.Reader. If the system call fails, Read returns a syscall.Errno. If
// waiting fails, as after a deadline, Read returns the error of package net.
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
