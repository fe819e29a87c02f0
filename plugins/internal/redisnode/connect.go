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

// MaxPool is the most connections that a client may be allowed.
const MaxPool = 1000

// Take adds to c what an address says beside host and port. It must not
// contradict the keys.
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

// ClientOptions returns what every client is made with: pool is how many
// connections carry requests, and with secure the address asks for TLS. Each new connection is given to connected before its
// first request; when that fails the connection is closed and the request
// fails with the same error, unsent. Links must be the client's own.
//
// The client never sends a request a second time: its first sending may have
// been executed. It uses RESP2, which has no push frames to look for. What it
// would print about failed connections, to the standard error of the whole
// process, is dropped: the same errors reach the callers.
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
		// Two more than the lanes: for a check and a listing.
		PoolSize: pool + 2, PoolTimeout: c.RequestTimeout, PipelinePoolSize: -1,
		ConnMaxIdleTime: 5 * time.Minute, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}, nil
}

// closeWithContext marks a context whose end closes the connections that were
// opened with it. The client does not look at a context while it reads.
type closeWithContext struct{}

// dialer connects, and tells a connection that never came about from one that
// broke.
func dialer(timeout time.Duration, source *config.Source, links *Links) func(context.Context, string, string) (net.Conn, error) {
	d := &net.Dialer{KeepAlive: 15 * time.Second}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		links.rest(ctx)
		end := time.Now().Add(timeout)
		bounded, cancel := context.WithDeadline(ctx, end)
		defer cancel()
		made := time.Now()
		conn, err := source.Dial(bounded, d, server, network, addr)
		if err != nil {
			return nil, &DialError{Addr: addr, Err: err}
		}
		c := &serverConn{Conn: polled(conn), addr: addr, end: end, link: link{links: links, made: made}}
		if ctx.Value(closeWithContext{}) != nil {
			c.wakeups = true
			context.AfterFunc(ctx, func() { _ = c.Close() })
		}
		links.add(c)
		return c, nil
	}
}

// serverConn is a connection to what should be a Redis server. What comes
// first says whether one is at the other end, and refuses a certificate where
// it is refused after the handshake, as in TLS 1.3. It answers the client's
// HELLO, so until it came nothing was asked for.
type serverConn struct {
	net.Conn
	addr    string
	end     time.Time // when the connection must be of use
	replied bool      // something came from the server
	link
}

// SetReadDeadline implements net.Conn: the first answer belongs to what
// dial_timeout bounds.
func (c *serverConn) SetReadDeadline(t time.Time) error {
	if !c.replied && (t.IsZero() || t.After(c.end)) {
		t = c.end
	}
	return c.Conn.SetReadDeadline(t)
}

const (
	// server is what should listen at an address.
	server = "Redis server"
	// replyKinds are what a reply begins with: a status, an error, a number, a
	// string or an array, and a map in RESP3.
	replyKinds = "+-:$*%"
)

// lateGrace is how long a read whose time is over looks again.
const lateGrace = 2 * time.Millisecond

// Read implements net.Conn. It looks once more when the deadline has passed: on
// a busy machine it is this process that was late, and the reply has been there
// for a while.
func (c *serverConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.Conn.SetReadDeadline(time.Now().Add(lateGrace)) == nil {
		if again, e := c.Conn.Read(p); again > 0 {
			n, err = again, e
		}
	}
	c.label(p[:n])
	if n == 0 && c.wakeups && c.left.Load() {
		err = errLeft // closed here
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

// Write implements net.Conn. A server that ended the connection may have said
// why before. When the time for p was over, it has not.
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

// Links are the connections of one client. The client has no list of them, and
// closes one only when it breaks or says READONLY outside of a script; but what
// one reply tells of a server holds for all connections to it. A name may have
// led new connections to another server for long, and cut none of the old ones.
//
// A connection that is left is closed when the client looks for an idle one, and
// that of wake-ups, which is never idle, at once. Replies that are under way
// arrive.
type Links struct {
	// Labels has connections take the run id of their server from the first
	// INFO.
	Labels bool

	mu     sync.Mutex
	open   map[*serverConn]struct{}
	failed time.Time     // when a server was last found that does not serve
	pause  time.Duration // for how long after that no connection is made
}

// How long after a server that does not serve the next connection is made: the first
// one at once, and the others after pauses that double.
const (
	firstPause = 25 * time.Millisecond
	mostPause  = 250 * time.Millisecond
	calmAfter  = 4 * mostPause
)

// Leave leaves the connections that were made before the given time: what was
// asked then has shown that their server does not serve.
func (l *Links) Leave(before time.Time) {
	l.leave(func(c *serverConn) bool { return c.made.Before(before) })
	l.Refused()
}

// Keep leaves the connections to other servers than the one with the run id.
func (l *Links) Keep(run string) {
	l.leave(func(c *serverConn) bool { return c.run != "" && c.run != run })
}

func (l *Links) leave(which func(*serverConn) bool) {
	var wakeups []*serverConn
	l.mu.Lock()
	for c := range l.open {
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

// Refused has the next connections wait: a new one has led to a server that
// does not serve.
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

// rest waits until a connection may be made.
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

// Lead reports whether a connection that can be used leads to the server with
// the run id: it will be asked before a new one is made, and so tell when that
// server serves no more. One of wake-ups would not.
func (l *Links) Lead(run string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if c.run == run && !c.wakeups && !c.left.Load() && !hungUp(c.Conn) {
			return true
		}
	}
	return false
}

func (l *Links) add(c *serverConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = map[*serverConn]struct{}{}
	}
	l.open[c] = struct{}{}
}

func (l *Links) remove(c *serverConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
}

// link is what a [serverConn] has for its Links.
type link struct {
	links   *Links
	made    time.Time
	wakeups bool
	left    atomic.Bool

	// run is guarded by links.mu. head is what has come of the replies before
	// it is known.
	run     string
	labeled bool
	head    []byte
}

// mostHead is in how much the run id must have come; some managed servers hide it.
const mostHead = 16 << 10

// label takes the run id of the server from what comes first: the answers to
// the login and to INFO, in pieces perhaps.
func (c *link) label(p []byte) {
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

// SyscallConn implements syscall.Conn, by which the client looks at a connection
// that was idle: a connection that was left is no good.
func (c *serverConn) SyscallConn() (syscall.RawConn, error) {
	if c.left.Load() {
		return nil, errLeft
	}
	if sc, ok := c.Conn.(syscall.Conn); ok {
		return sc.SyscallConn()
	}
	return opaque{}, nil
}

// opaque is a connection whose descriptor says nothing, as below TLS.
type opaque struct{ syscall.RawConn }

// Read implements syscall.RawConn.
func (opaque) Read(func(fd uintptr) bool) error { return nil }

// Close implements net.Conn.
func (c *serverConn) Close() error {
	c.links.remove(c)
	return c.Conn.Close()
}

// silentServer reports whether err is that no reply came.
func silentServer(err error) bool {
	var timeout net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
