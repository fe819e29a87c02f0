// Package rawio reads and writes sockets that do not block, without telling the Go
// runtime of calls that might block, which such sockets never do. The runtime would
// prepare for a blocked thread. After an idle moment it would wake its monitor
// thread, which costs as much as the whole call.
package rawio

import (
	"io"
	"syscall"
)

// Reader reads from a socket and waits for it in Go's poller alone. One
// goroutine at a time may use it.
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

// Read implements io.Reader. An error of the system is a syscall.Errno; one of
// the connection, such as a deadline that has passed, is as package net has it.
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
