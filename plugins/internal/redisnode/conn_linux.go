package redisnode

import (
	"crypto/tls"
	"net"
	"syscall"

	"github.com/lockbench/lockbench/internal/rawio"
)

// pollConn is a connection without TLS. Its reads and writes skip the Go runtime's bookkeeping of
// calls that might block. Go's sockets never block, but after an idle moment the runtime would wake
// its monitor thread for each read or write. At most one goroutine may read at a time, and at most
// one may write.
type pollConn struct {
	net.Conn
	raw      syscall.RawConn
	in       *rawio.Reader
	out      []byte
	wrote    int
	outErr   error
	tryWrite func(fd uintptr) bool
}

// polled makes reads and writes of conn cheaper. If that is impossible, it returns conn unchanged.
func polled(conn net.Conn) net.Conn {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return conn
	}
	raw, err := sc.SyscallConn()
	in, inErr := rawio.NewReader(sc)
	if err != nil || inErr != nil {
		return conn
	}
	c := &pollConn{Conn: conn, raw: raw, in: in}
	c.tryWrite = func(fd uintptr) bool {
		for c.wrote < len(c.out) {
			n, err := rawio.Write(fd, c.out[c.wrote:])
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

func (c *pollConn) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	if errno, ok := err.(syscall.Errno); ok {
		err = c.fail("read", errno)
	}
	return n, err
}

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

// SyscallConn implements syscall.Conn. The client uses it to find out whether the server has closed
// an idle connection, or has sent data that no request asked for.
func (c *pollConn) SyscallConn() (syscall.RawConn, error) { return quiet{c.raw}, nil }

// quiet saves the client a system call if an idle connection has no unread data.
type quiet struct{ syscall.RawConn }

func (q quiet) Read(look func(fd uintptr) bool) error {
	return q.RawConn.Read(func(fd uintptr) bool { return rawio.Silent(fd) || look(fd) })
}

// hungUp reports whether the server has closed conn. It returns false while conn has unread data,
// such as a TLS server's last message.
func hungUp(conn net.Conn) (yes bool) {
	if c, ok := conn.(*tls.Conn); ok {
		conn = c.NetConn()
	}
	c, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	err = raw.Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		yes = n == 0 && err == nil || err != nil && err != syscall.EAGAIN && err != syscall.EINTR
	})
	return yes || err != nil
}
