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

// Dial connects to addr. If ctx comes from [Open], Dial also gives Open the connection below TLS.
func Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{KeepAlive: 15 * time.Second}).DialContext(ctx, network, addr)
	if o, ok := ctx.Value(openingKey{}).(*opening); ok && err == nil {
		o.raw = conn
	}
	return conn, err
}

// opening keeps facts about a connection while [Open] makes the connection.
type opening struct {
	raw  net.Conn // the connection below TLS
	most int      // length limit of a statement in bytes; 0 means the server's limit

	mu  sync.Mutex
	err error // the error that the driver logged; the error that Connect returns gives no reason
}

type openingKey struct{}

// badConnection is the text of the driver's error after a failed write.
const badConnection = "bad connection"

// Logger returns a logger for the connection that [Open] makes with ctx. This logger keeps the
// first error that the driver logs. If ctx is not from Open, Logger returns nil.
func Logger(ctx context.Context) mysqldriver.Logger {
	if o, ok := ctx.Value(openingKey{}).(*opening); ok {
		return o
	}
	return nil
}

// Limit bounds the length of statements on the connection that [Open] makes with ctx. The parameter
// most is the limit in bytes, or 0 for the server's own limit.
func Limit(ctx context.Context, most int) {
	if o, ok := ctx.Value(openingKey{}).(*opening); ok {
		o.most = most
	}
}

func (o *opening) Print(v ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, x := range v {
		if err, ok := x.(error); ok && o.err == nil {
			o.err = err
		}
	}
}

// explain classifies an error of the driver's Connect. The driver's error may say only that the
// connection is bad or a packet is malformed, for example if the server is not MySQL. A server may
// also refuse the client's certificate late in the handshake. If the client then writes before it
// reads, it does not see the server's TLS alert.
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

// unanswered returns the error for a connection over which no MySQL server has greeted the client.
func unanswered(err error) error {
	return fmt.Errorf("mysql: %w", config.Unanswered("MySQL server", err))
}
