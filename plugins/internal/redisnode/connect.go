package redisnode

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// MaxPool is the most connections that a client may be allowed.
const MaxPool = 1000

// Take adds to c what an address says beside host and port. It must not
// contradict the keys.
func Take(c *kit.Connect, a Address) error {
	switch {
	case a.Network == "unix" && c.Secure():
		return kit.Conflict("a unix socket has no TLS", "address", "tls_enabled")
	case a.Password != "" && c.PasswordFile != "":
		return kit.Conflict("the URL has a password", "address", "password_file")
	case a.Password != "" && c.Password != "" && a.Password != c.Password:
		return kit.Conflict("the URL in address has another", "password")
	case a.Username != "" && c.Username != "" && a.Username != c.Username:
		return kit.Conflict("the URL in address has another", "username")
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
func ClientOptions(c kit.Connect, pool int, secure bool, log *slog.Logger, links *Links,
	connected func(context.Context, *goredis.Conn) error,
) (*goredis.UniversalOptions, error) {
	err := kit.Between("pool_size", pool, 1, MaxPool)
	if c.Username != "" && !c.HasPassword() {
		err = errors.Join(err, kit.Conflict("a user needs a password", "username", "password"))
	}
	if err != nil {
		return nil, err
	}
	source, err := kit.NewSource(c, secure, log)
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
func dialer(timeout time.Duration, source *kit.Source, links *Links) func(context.Context, string, string) (net.Conn, error) {
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
	return &DialError{Addr: c.addr, Err: kit.Unanswered(server, err)}
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
