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

// Take adds to c the settings that an address gives beside host and port. They
// must not contradict the keys.
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

// ClientOptions returns the options of every client: pool connections carry requests,
// and with secure the address asks for TLS. Each new connection is given to connected
// before its first request. If that fails, the connection is closed and the request
// fails with the same error, unsent. Links must be the client's own.
//
// The client never sends a request a second time, because the first sending may
// have been executed. It uses RESP2, which has no push frames to look for. Its
// messages about failed connections are dropped: they would go to the standard
// error of the whole process, and the same errors reach the callers.
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
		// Two connections more than the lanes, for a check and a listing.
		PoolSize: pool + 2, PoolTimeout: c.RequestTimeout, PipelinePoolSize: -1,
		ConnMaxIdleTime: 5 * time.Minute, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}, nil
}

// closeWithContext marks a context whose end closes the connections that were
// opened with it. The client does not look at a context while it reads.
type closeWithContext struct{}

// dialer connects. Its errors distinguish a failed dial from a broken
// connection.
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

// serverConn is a connection to a supposed Redis server. The first bytes show
// whether one is at the other end, or refuse a certificate after the handshake,
// as in TLS 1.3. They answer the client's HELLO, so no request was sent before
// them.
type serverConn struct {
	net.Conn
	addr    string
	end     time.Time // deadline of the first reply
	replied bool      // something came from the server
	link
}

// SetReadDeadline implements net.Conn. The first reply must come within
// dial_timeout.
func (c *serverConn) SetReadDeadline(t time.Time) error {
	if !c.replied && (t.IsZero() || t.After(c.end)) {
		t = c.end
	}
	return c.Conn.SetReadDeadline(t)
}

const (
	// server names what should listen at an address.
	server = "Redis server"
	// replyKinds are the first bytes of replies: a status, an error, a number, a
	// string or an array, and a map in RESP3.
	replyKinds = "+-:$*%"
)

// lateGrace is how long a read looks again after its deadline.
const lateGrace = 2 * time.Millisecond

// Read implements net.Conn. It looks once more when the deadline has passed,
// because on a busy machine this process may be late while the reply is already
// there.
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

// Write implements net.Conn. After a failed write it reads why the server ended
// the connection, unless the time for p was over.
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
// closes one only when it breaks or says READONLY outside of a script. But one
// reply about a server holds for all connections to it. A name may have long
// led new connections to another server, and cut none of the old ones.
//
// The client closes a left connection when it looks for an idle one. The one of
// wake-ups is never idle, and is closed at once. Replies under way arrive.
type Links struct {
	// Labels has connections take the run id of their server from the first
	// INFO.
	Labels bool

	mu     sync.Mutex
	open   map[*serverConn]struct{}
	failed time.Time     // when a server was last found not to serve
	pause  time.Duration // how long after failed no connection is made
}

// Pauses before the next connection after a server that does not serve: none at
// first, then pauses that double.
const (
	firstPause = 25 * time.Millisecond
	mostPause  = 250 * time.Millisecond
	calmAfter  = 4 * mostPause
)

// Leave leaves the connections made before the given time, because their server
// was found not to serve.
func (l *Links) Leave(before time.Time) {
	l.leave(func(c *serverConn) bool { return c.made.Before(before) })
	l.Refused()
}

// Keep leaves all connections but those to the server with the run id.
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

// Refused delays the next connections, because a new one has led to a server
// that does not serve.
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

// Lead reports whether a usable connection leads to the server with the run id.
// The client asks that one before it makes a new one, and so learns when the
// server serves no more. A connection of wake-ups does not count.
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

// link is the state that a [serverConn] keeps for its Links.
type link struct {
	links   *Links
	made    time.Time
	wakeups bool
	left    atomic.Bool

	// run is guarded by links.mu. head holds the first bytes of the replies until
	// run is known.
	run     string
	labeled bool
	head    []byte
}

// mostHead bounds the bytes searched for the run id; some managed servers hide it.
const mostHead = 16 << 10

// label finds the server's run id in the first bytes, the replies to the login
// and to INFO, perhaps in pieces.
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

// SyscallConn implements syscall.Conn. The client uses it to check an idle
// connection, and must not use one that was left.
func (c *serverConn) SyscallConn() (syscall.RawConn, error) {
	if c.left.Load() {
		return nil, errLeft
	}
	if sc, ok := c.Conn.(syscall.Conn); ok {
		return sc.SyscallConn()
	}
	return opaque{}, nil
}

// opaque is a connection whose descriptor shows nothing, as below TLS.
type opaque struct{ syscall.RawConn }

// Read implements syscall.RawConn.
func (opaque) Read(func(fd uintptr) bool) error { return nil }

// Close implements net.Conn.
func (c *serverConn) Close() error {
	c.links.remove(c)
	return c.Conn.Close()
}

// silentServer reports whether err means that no reply came.
func silentServer(err error) bool {
	var timeout net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
