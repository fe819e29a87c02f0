package frame

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// prefaceTimeout is the time limit for a host to send a connection's preface (its first bytes).
const prefaceTimeout = 5 * time.Second

// Listener is the data socket of a plugin. Serve accepts the host's two
// connections, and then closes the socket.
type Listener struct {
	listener *net.UnixListener
	closing  context.Context // ends with Close
	close    context.CancelFunc
}

// Listen creates the socket at path. Only this process's user may have access to its directory.
func Listen(path string) (*Listener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("data socket: %w", err)
	}
	closing, cancel := context.WithCancel(context.Background())
	return &Listener{listener: l, closing: closing, close: cancel}, nil
}

// Serve answers the requests of one host. It accepts only connections from processes of this user
// whose ids are in hosts. When it refuses a connection, it calls the function refuse with the
// reason. Serve returns nil when the host or Close ends the connection. redact may be nil.
func (l *Listener) Serve(b driver.Backend, redact *wire.Redactor, refuse func(error), hosts ...int) error {
	conns, err := l.accept(refuse, hosts)
	l.listener.Close() // Close also removes the socket's file
	var s *session
	if err == nil {
		s, err = newSession(conns[prefaceRequests], conns[prefaceReplies], b, redact)
	}
	if err != nil {
		for _, c := range conns {
			c.Close()
		}
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		return fmt.Errorf("data socket: %w", err)
	}
	stop := context.AfterFunc(l.closing, s.close)
	defer stop()
	return s.serve()
}

// accept returns the host's two connections, or those accepted before an error. The keys of the map
// are the connections' prefaces.
func (l *Listener) accept(refuse func(error), hosts []int) (map[string]*net.UnixConn, error) {
	conns := map[string]*net.UnixConn{}
	for len(conns) < 2 {
		conn, err := l.listener.AcceptUnix()
		if err != nil {
			return conns, err
		}
		preface, err := greet(conn, hosts)
		if err == nil && conns[preface] != nil {
			err = fmt.Errorf("%w: two connections %q", errBroken, preface)
		}
		if err != nil {
			conn.Close()
			refuse(err)
			continue
		}
		conns[preface] = conn
	}
	return conns, nil
}

func greet(conn *net.UnixConn, hosts []int) (string, error) {
	if err := checkPeer(conn, hosts...); err != nil {
		return "", err
	}
	got := make([]byte, len(prefaceRequests))
	if err := conn.SetReadDeadline(time.Now().Add(prefaceTimeout)); err != nil {
		return "", err
	}
	if _, err := io.ReadFull(conn, got); err != nil {
		return "", err
	}
	if p := string(got); p != prefaceRequests && p != prefaceReplies {
		return "", fmt.Errorf("%w: the preface is %q", errBroken, got)
	}
	return string(got), conn.SetReadDeadline(time.Time{})
}

// Close makes Serve cancel the requests under way and return. Close does not wait for Serve.
func (l *Listener) Close() {
	l.listener.Close()
	l.close()
}
