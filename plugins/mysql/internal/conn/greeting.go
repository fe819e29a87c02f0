package conn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/config"
)

// Greeted connects and looks at what the server says first, which the driver
// would only call malformed. A server of MySQL speaks first; from one that is
// silent some garbage fetches a word about what it is.
func Greeted(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if o, ok := ctx.Value(openingKey{}).(*opening); ok {
		o.raw = conn
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	g, err := greet(ctx, conn)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("mysql: %w", err)
	}
	return g, nil
}

// lastWord is the part of the time for a connection that is kept for the
// question who a silent server is.
const lastWord = 4

func greet(ctx context.Context, conn net.Conn) (net.Conn, error) {
	if end, ok := ctx.Deadline(); ok {
		_ = conn.SetReadDeadline(end.Add(-time.Until(end) / lastWord))
	}
	first := make([]byte, 5)
	n, err := conn.Read(first)
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		return nil, silent(ctx, conn)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w: connected, but no greeting came: what listens there is no server of MySQL, or a proxy without one: %w",
			driver.ErrUnavailable, driver.ErrNotSent, err)
	}
	if speaks := config.Speaks(first[:n]); speaks != "" && speaks != config.MySQL {
		return nil, config.Stranger(speaks, config.MySQL)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return nil, err
	}
	g := &greeting{Conn: conn, first: first[:n]}
	if sc, ok := conn.(syscall.Conn); ok {
		return struct {
			*greeting
			syscall.Conn
		}{g, sc}, nil
	}
	return g, nil
}

// silent asks a server that has said nothing who it is. Redis answers a PING,
// and most others complain about it.
func silent(ctx context.Context, conn net.Conn) error {
	if end, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(end.Add(-time.Until(end) / lastWord))
	}
	first := make([]byte, 16)
	_, _ = conn.Write([]byte("PING\r\n\r\n"))
	n, _ := conn.Read(first)
	if speaks := config.Speaks(first[:n]); speaks != "" {
		return config.Stranger(speaks, config.MySQL)
	}
	return fmt.Errorf("%w: %w: connected, but no greeting came in time: what listens there is no server of MySQL, or does not get to answer", driver.ErrUnavailable, driver.ErrNotSent)
}

// greeting is a connection whose first bytes were read already.
type greeting struct {
	net.Conn
	first []byte
}

// Read implements net.Conn.
func (c *greeting) Read(p []byte) (int, error) {
	if len(c.first) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.first)
	c.first = c.first[n:]
	return n, nil
}

// opening is what becomes known of a connection while [Open] makes it.
type opening struct {
	raw    net.Conn // below TLS
	secure bool
	most   int // bytes in a statement; 0 for what the server takes

	mu  sync.Mutex
	err error // what the driver said: its own error is that the connection is bad, whatever the reason
}

type openingKey struct{}

// badConnection is the driver's error when it could not write.
const badConnection = "bad connection"

// Logger keeps what the driver says about the connection that [Open] makes with
// ctx, with TLS if it is secure; nil when that is another one.
func Logger(ctx context.Context, secure bool) mysqldriver.Logger {
	if o, ok := ctx.Value(openingKey{}).(*opening); ok {
		o.secure = secure
		return o
	}
	return nil
}

// Limit has the connection that [Open] makes with ctx refuse statements that are
// longer than most, unless that is 0.
func Limit(ctx context.Context, most int) {
	if o, ok := ctx.Value(openingKey{}).(*opening); ok {
		o.most = most
	}
}

// Print implements the driver's Logger.
func (o *opening) Print(v ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, x := range v {
		if err, ok := x.(error); ok && o.err == nil {
			o.err = err
		}
	}
}

// with returns err with what was said. A server may refuse a certificate when the
// client has finished its part of the handshake, and the alert gets lost when the client
// writes then.
func (o *opening) with(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil || !errors.Is(err, mysqldriver.ErrInvalidConn) && err.Error() != badConnection {
		return err
	}
	err = fmt.Errorf("%w: %w", err, o.err)
	if o.secure && (errors.Is(o.err, syscall.ECONNRESET) || errors.Is(o.err, syscall.EPIPE)) {
		err = fmt.Errorf("the server ended the connection: it may refuse the client's certificate (tls_cert_file), or want one: %w", err)
	}
	return err
}
