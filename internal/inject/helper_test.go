package inject

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// echo is a server that sends every byte back, and counts the bytes.
type echo struct {
	listener net.Listener
	mu       sync.Mutex
	received int
}

func startEcho(t testing.TB) *echo {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	e := &echo{listener: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go e.serve(c)
		}
	}()
	return e
}

func (e *echo) serve(c net.Conn) {
	defer c.Close()
	buf := make([]byte, 1024)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		e.mu.Lock()
		e.received += n
		e.mu.Unlock()
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (e *echo) got() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.received
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func proxied(t testing.TB) (*Proxy, *echo) {
	t.Helper()
	e := startEcho(t)
	p, err := NewProxy(e.listener.Addr().String())
	must(t, err)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, e
}

// paired returns a proxy, and a function that opens a connection
// through the proxy and returns both ends of the connection.
func paired(t *testing.T) (p *Proxy, pair func() (client, server net.Conn)) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p, err = NewProxy(l.Addr().String())
	must(t, err)
	t.Cleanup(func() {
		must(t, p.Close())
		must(t, l.Close())
	})
	return p, func() (client, server net.Conn) {
		client = dial(t, p)
		server, err := l.Accept()
		must(t, err)
		t.Cleanup(func() { server.Close() })
		_, err = io.WriteString(client, "x")
		must(t, err)
		_, err = io.ReadFull(server, make([]byte, 1))
		must(t, err)
		return client, server
	}
}

// silent reports whether c delivers neither data nor the connection's end within the time wait.
func silent(t *testing.T, c net.Conn, wait time.Duration) bool {
	t.Helper()
	must(t, c.SetReadDeadline(time.Now().Add(wait)))
	_, err := c.Read(make([]byte, 1))
	if err == nil {
		t.Error("there was something to read")
	}
	return errors.Is(err, os.ErrDeadlineExceeded)
}

func dial(t testing.TB, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func say(c net.Conn, text string, wait time.Duration) (string, error) {
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	b := make([]byte, len(text))
	n, err := io.ReadFull(c, b)
	return string(b[:n]), err
}

const (
	timeout = 30 * time.Second
	brief   = 100 * time.Millisecond
)
