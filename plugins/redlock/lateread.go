package redlock

import (
	"context"
	"errors"
	"net"
	"os"
	"time"
)

// lateGrace is how long a read whose time is over looks again.
const lateGrace = 2 * time.Millisecond

// lateReader is a connection that looks once more when the deadline of a read
// has passed: on a busy machine it is this process that was late, and the
// node's reply has been there for a while.
type lateReader struct{ net.Conn }

func (c lateReader) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	if e := c.Conn.SetReadDeadline(time.Now().Add(lateGrace)); e != nil {
		return n, err
	}
	if again, e := c.Conn.Read(p); again > 0 {
		return again, e
	}
	return n, err
}

// dialLate wraps what dial connects.
func dialLate(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return lateReader{conn}, nil
	}
}
