package redisnode

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockbench/lockbench/core/driver/config"
)

// MaxPool is the largest valid value of the setting pool_size.
const MaxPool = 1000

// Take copies the user name and the password from the address a to the settings c.
func Take(c *config.Connect, a Address) error {
	switch {
	case a.Network == "unix" && c.Secure():
		return config.Conflict("a unix socket has no TLS", "address", "tls_enabled")
	case a.Password != "" && c.PasswordFile != "":
		return config.Conflict("the URL has a password", "address", "password_file")
	case a.Password != "" && c.Password != "" && a.Password != c.Password:
		return config.Conflict("the URL in address has another", "password")
	case a.Username != "" && c.Username != "" && a.Username != c.Username:
		return config.Conflict("the URL in address has another", "username")
	}
	c.Password = cmp.Or(a.Password, c.Password)
	c.Username = cmp.Or(a.Username, c.Username)
	return nil
}

// ClientOptions returns the options for a go-redis client. The parameter pool is the number of
// connections for requests, and secure is true if the address asks for TLS. Before its first
// request, each new connection is passed to the function connected. If connected fails, the client
// closes the connection. The request is not sent and fails with the same error. Each client needs
// its own Links.
//
// The client never repeats a request, because the server may have executed it. The client uses
// RESP2, because RESP3 would make it look for push messages. The client's log is dropped, because
// callers get the same errors.
func ClientOptions(c config.Connect, pool int, secure bool, log *slog.Logger, links *Links,
	connected func(context.Context, *goredis.Conn) error,
) (*goredis.UniversalOptions, error) {
	err := config.Between("pool_size", pool, 1, MaxPool)
	if c.Username != "" && !c.HasPassword() {
		err = errors.Join(err, config.Conflict("a user needs a password", "username", "password"))
	}
	if err != nil {
		return nil, err
	}
	source, err := config.NewSource(c, secure, log)
	if err != nil {
		return nil, err
	}
	goredis.SetLogger(silent{})
	return &goredis.UniversalOptions{
		CredentialsProviderContext: func(context.Context) (string, string, error) {
			return c.Username, source.Password(), nil
		},
		Protocol: 2, Dialer: dialer(c.DialTimeout, source, links), OnConnect: connected,
		MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: c.DialTimeout, ReadTimeout: c.RequestTimeout, WriteTimeout: c.RequestTimeout,
		// Besides the connections for requests, a check needs one, and a listing needs one.
		PoolSize: pool + 2, PoolTimeout: c.RequestTimeout, PipelinePoolSize: -1,
		ConnMaxIdleTime: 5 * time.Minute, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}, nil
}

// closeWithContext is the key of a value that marks a context. When a marked context ends,
// connections opened with it are closed. The client itself ignores a context while it reads.
type closeWithContext struct{}

func dialer(timeout time.Duration, source *config.Source, links *Links) func(context.Context, string, string) (net.Conn, error) {
	d := &net.Dialer{KeepAlive: 15 * time.Second}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		links.rest(ctx)
		made := time.Now()
		end := made.Add(timeout)
		bounded, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		conn, err := source.Dial(bounded, d, server, network, addr)
		if err != nil {
			return nil, &DialError{Addr: addr, Err: err}
		}
		c := &serverConn{Conn: polled(conn), links: links, addr: addr, made: made, end: end}
		if ctx.Value(closeWithContext{}) != nil {
			c.wakeups = true
			context.AfterFunc(ctx, func() { _ = c.Close() })
		}
		links.add(c)
		return c, nil
	}
}

// serverConn is a connection to a program that should be a Redis server. The first bytes of the
// program's first reply show whether it is one. The client sends no request before this reply.
// Until then, a TLS 1.3 server may still refuse the client's certificate.
type serverConn struct {
	net.Conn
	links   *Links
	addr    string
	made    time.Time
	end     time.Time // deadline of the first reply
	replied bool      // the server has sent something
	wakeups bool
	left    atomic.Bool // links has given up the connection

	// run is the server's run id, guarded by links.mu. Until the run id is known, the head field
	// collects the first bytes of the replies.
	run     string
	labeled bool
	head    []byte
}

// SetReadDeadline implements net.Conn. The first reply must come within dial_timeout.
func (c *serverConn) SetReadDeadline(t time.Time) error {
	if !c.replied && (t.IsZero() || t.After(c.end)) {
		t = c.end
	}
	return c.Conn.SetReadDeadline(t)
}

const (
	// server names, in errors, the program that should listen at an address.
	server = "Redis server"
	// replyKinds has the possible first bytes of a reply. They stand for a status, an error, a number,
	// a string, an array, and (in RESP3) a map.
	replyKinds = "+-:$*%"
)

// lateGrace is the time limit of a second read, after a read that missed its deadline.
const lateGrace = 2 * time.Millisecond

// Read implements net.Conn. If a read misses its deadline, Read tries once more. On a busy machine,
// this process may run too late to read a reply that came in time.
func (c *serverConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.Conn.SetReadDeadline(time.Now().Add(lateGrace)) == nil {
		if again, e := c.Conn.Read(p); again > 0 {
			n, err = again, e
		}
	}
	c.label(p[:n])
	if n == 0 && c.wakeups && c.left.Load() {
		err = errLeft // this process has closed the connection
	}
	if c.replied {
		return n, err
	}
	c.replied = n > 0
	if err != nil && n == 0 {
		return 0, c.unanswered(err)
	}
	if n > 0 && !strings.ContainsRune(replyKinds, rune(p[0])) {
		return 0, c.unanswered(errors.New("the first bytes are no reply of Redis"))
	}
	return n, err
}

// Write implements net.Conn. If a write before the first reply fails, Write reads the server's
// reason for ending the connection, unless the write missed its deadline.
func (c *serverConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err == nil || c.replied {
		return n, err
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) && c.Conn.SetReadDeadline(c.end) == nil {
		if _, why := c.Read(make([]byte, len(p))); why != nil {
			return n, why
		}
	}
	return n, c.unanswered(err)
}

func (c *serverConn) unanswered(err error) error {
	return &DialError{Addr: c.addr, Err: config.Unanswered(server, err)}
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// Links is the list of one client's connections. The client itself closes a connection only if the
// connection breaks or the server answers READONLY outside of a script. But if one reply shows that
// a server does not serve, all connections to this server are useless, although they may stay open.
//
// To give up a connection, Links marks it. When the client next looks for an idle connection, it
// closes the marked ones. The connection for wake-ups is never idle, so Links closes it at once. A
// request under way on a marked connection still gets its reply.
type Links struct {
	// Labels is true if each connection must record its server's run id, from the first INFO reply.
	Labels bool

	mu     sync.Mutex
	open   []*serverConn
	failed time.Time     // when a server was last found not to serve
	pause  time.Duration // how long after failed no connection is made
}

// If a connection leads to a server that does not serve, the client makes the next one at once. If
// this happens again within calmAfter, the client first pauses, longer each time up to mostPause.
const (
	firstPause = 25 * time.Millisecond
	mostPause  = 250 * time.Millisecond
	calmAfter  = 4 * mostPause
)

// Leave gives up all connections made before the given time. Then it calls [Links.Refused].
func (l *Links) Leave(before time.Time) {
	l.leave(func(c *serverConn) bool { return c.made.Before(before) })
	l.Refused()
}

// Keep gives up each connection whose server has a known run id other than the given one.
func (l *Links) Keep(run string) {
	l.leave(func(c *serverConn) bool { return c.run != "" && c.run != run })
}

func (l *Links) leave(which func(*serverConn) bool) {
	var wakeups []*serverConn
	l.mu.Lock()
	for _, c := range l.open {
		if which(c) {
			c.left.Store(true)
			if c.wakeups {
				wakeups = append(wakeups, c)
			}
		}
	}
	l.mu.Unlock()
	for _, c := range wakeups {
		_ = c.Close()
	}
}

// Refused records a connection to a server that does not serve. It may delay new connections.
func (l *Links) Refused() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.failed) > calmAfter {
		l.pause = 0
	} else {
		l.pause = min(2*l.pause+firstPause, mostPause)
	}
	l.failed = time.Now()
}

func (l *Links) rest(ctx context.Context) {
	l.mu.Lock()
	pause := time.Until(l.failed.Add(l.pause))
	l.mu.Unlock()
	if pause <= 0 {
		return
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// Lead reports whether a usable connection leads to the server with this run id. The client uses
// that connection before it makes a new one, and so notices when that server stops serving. The
// connection for wake-ups does not count.
func (l *Links) Lead(run string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.open, func(c *serverConn) bool {
		return c.run == run && !c.wakeups && !c.left.Load() && !hungUp(c.Conn)
	})
}

func (l *Links) add(c *serverConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = append(l.open, c)
}

func (l *Links) remove(c *serverConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = slices.DeleteFunc(l.open, func(other *serverConn) bool { return other == c })
}

// mostHead is the number of bytes searched for the run id, which some managed servers never send.
const mostHead = 16 << 10

// label finds the server's run id in the first bytes that the server sends: the replies to the
// login and to INFO. Each call gets the next bytes (p), because the replies may come in pieces.
func (c *serverConn) label(p []byte) {
	if !c.links.Labels || c.labeled {
		return
	}
	c.head = slices.Concat(c.head, p)
	_, rest, ok := bytes.Cut(c.head, []byte("\nrun_id:"))
	run, _, whole := bytes.Cut(rest, []byte("\r"))
	if !(ok && whole) && len(c.head) < mostHead {
		return
	}
	c.labeled, c.head = true, nil
	c.links.mu.Lock()
	c.run = string(run)
	c.links.mu.Unlock()
}

var errLeft = errors.New("the connection leads to a server that does not serve")

// SyscallConn implements syscall.Conn. The client calls it to check an idle connection. If Links
// has given up the connection, the error makes the client close it.
func (c *serverConn) SyscallConn() (syscall.RawConn, error) {
	if c.left.Load() {
		return nil, errLeft
	}
	if sc, ok := c.Conn.(syscall.Conn); ok {
		return sc.SyscallConn()
	}
	return opaque{}, nil
}

// opaque hides a TLS connection's file descriptor, because the client cannot read encrypted bytes.
type opaque struct{ syscall.RawConn }

func (opaque) Read(func(fd uintptr) bool) error { return nil }

func (c *serverConn) Close() error {
	c.links.remove(c)
	return c.Conn.Close()
}

// TimedOut reports whether err is a timeout, which means that no reply came.
func TimedOut(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}
