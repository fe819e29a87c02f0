package conn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/core/driver/config"
)

// Dial connects. A connection that [Open] makes is known to it below TLS, too.
func Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext(ctx, network, addr)
	if o, ok := ctx.Value(openingKey{}).(*opening); ok && err == nil {
		o.raw = conn
	}
	return conn, err
}

// opening is what is learned about a connection while [Open] makes it.
type opening struct {
	raw  net.Conn // below TLS
	most int      // bytes in a statement; 0 for what the server takes

	mu  sync.Mutex
	err error // what the driver said: its own error is that the connection is bad, whatever the reason
}

type openingKey struct{}

// badConnection is the driver's error when it could not write.
const badConnection = "bad connection"

// Logger keeps what the driver says about the connection that [Open] makes with
// ctx; nil when that is another one.
func Logger(ctx context.Context) mysqldriver.Logger {
	if o, ok := ctx.Value(openingKey{}).(*opening); ok {
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

// explain classifies an error of the driver's Connect, whose own word of a server that
// does not greet as MySQL does is that the connection is bad, or a packet malformed. A
// server may also refuse a certificate when the client has finished its part of the
// handshake, and the alert gets lost when the client writes then.
func (o *opening) explain(ctx context.Context, err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil && (errors.Is(err, mysqldriver.ErrInvalidConn) || err.Error() == badConnection) {
		err = fmt.Errorf("%w: %w", err, o.err)
	}
	var failed *net.OpError
	if errors.As(err, &failed) && failed.Op == "dial" || Number(err) != 0 || deniedBy(err) != "" {
		return DialError(ctx, err) // not connected, or the server has answered
	}
	return unanswered(withCause(ctx, err))
}

// unanswered returns the error of a connection over which no server has greeted.
func unanswered(err error) error {
	return fmt.Errorf("mysql: %w", config.Unanswered("MySQL server", err))
}
