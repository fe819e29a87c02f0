package redisnode

import (
	"io"
	"net"
	"syscall"
	"unsafe"
)

// pollConn is a connection without TLS whose reads and writes do not tell the
// Go runtime of calls that might block, which sockets in Go do not: after an
// idle moment the runtime would wake its monitor thread for each of them. Each
// direction is used by one goroutine at a time.
type pollConn struct {
	net.Conn
	raw      syscall.RawConn
	in, out  []byte
	n, wrote int
	inErr    error
	outErr   error
	tryRead  func(fd uintptr) bool
	tryWrite func(fd uintptr) bool
}

// polled returns conn with cheaper reads and writes, where that can be.
func polled(conn net.Conn) net.Conn {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return conn
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return conn
	}
	c := &pollConn{Conn: conn, raw: raw}
	c.tryRead = func(fd uintptr) bool {
		c.n, c.inErr = transfer(syscall.SYS_READ, fd, c.in)
		return c.inErr != syscall.EAGAIN
	}
	c.tryWrite = func(fd uintptr) bool {
		for c.wrote < len(c.out) {
			n, err := transfer(syscall.SYS_WRITE, fd, c.out[c.wrote:])
			if err == syscall.EAGAIN {
				return false
			}
			if c.outErr = err; err != nil {
				break
			}
			c.wrote += n
		}
		return true
	}
	return c
}

func transfer(trap, fd uintptr, p []byte) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
			continue
		}
		return 0, errno
	}
}

// Read implements net.Conn.
func (c *pollConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.in, c.n, c.inErr = p, 0, nil
	err := c.raw.Read(c.tryRead)
	c.in = nil
	switch {
	case err != nil:
		return 0, err
	case c.inErr != nil:
		return 0, c.fail("read", c.inErr)
	case c.n == 0:
		return 0, io.EOF
	}
	return c.n, nil
}

// Write implements net.Conn.
func (c *pollConn) Write(p []byte) (int, error) {
	c.out, c.wrote, c.outErr = p, 0, nil
	err := c.raw.Write(c.tryWrite)
	c.out = nil
	switch {
	case err != nil:
		return c.wrote, err
	case c.outErr != nil:
		return c.wrote, c.fail("write", c.outErr)
	}
	return c.wrote, nil
}

func (c *pollConn) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

// SyscallConn implements syscall.Conn for the client's look at a connection
// that was idle: whether the server has closed it or has sent something unasked.
func (c *pollConn) SyscallConn() (syscall.RawConn, error) { return quiet{c.raw}, nil }

// quiet skips that look's own system call when there is nothing to read.
type quiet struct{ syscall.RawConn }

// Read implements syscall.RawConn.
func (q quiet) Read(look func(fd uintptr) bool) error {
	return q.RawConn.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b)), 1,
			syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
		return errno == syscall.EAGAIN || look(fd)
	})
}
