package cluster

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"
)

// TestDeadAddress connects to a list of addresses. Only the last address is alive. It must be used
// before the attempts to connect to the dead addresses time out.
func TestDeadAddress(t *testing.T) {
	dead, alive := silent(t), listening(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // the default of dial_timeout
	defer cancel()
	conn, err := dialAny(ctx, []string{dead, dead, alive})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if conn.RemoteAddr().String() != alive {
		t.Errorf("connected to %v, want %s", conn.RemoteAddr(), alive)
	}
}

func TestNoAddress(t *testing.T) {
	if _, err := dialAny(t.Context(), []string{"127.0.0.1:1", "127.0.0.1:1"}); err == nil {
		t.Error("connected to nothing")
	}
	if _, err := dial(t.Context(), "no port"); err == nil {
		t.Error("connected to what is no address")
	}
}

func listening(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// silent returns an address at which packets are dropped, because the accept
// queue of its socket is full.
func silent(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*syscall.SockaddrInet4).Port}).String()
	for {
		conn, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}
