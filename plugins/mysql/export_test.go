package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"fmt"
	"strings"

	"github.com/lockbench/lockbench/core/driver/config"
	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
)

// SettleFor is the longest time that a withdrawal waits for replies before it writes a tombstone.
const SettleFor = settleFor

// SlowestAfter is the time after which every renewal counts as waiting for a locked row.
const SlowestAfter = slowestAfter

// Granted returns the grant that a waiter computes from the grant's end in the store.
var Granted = granted

// Purge deletes old rows, as a host does every hour.
func (b *Backend) Purge(ctx context.Context) (int, error) { return b.purge(ctx) }

// OpenAfter opens a backend whose connections first run the statement in prelude, as if it were the
// server's init_connect.
func OpenAfter(opts Options, prelude string) (*Backend, error) {
	return openWith(opts, func(c sqldriver.Connector, setup string) (sqldriver.Connector, string) {
		return &prepared{c, prelude}, setup
	})
}

// OpenWith opens a backend whose connections also run the statements in settings during their
// setup. These statements must end in a semicolon.
func OpenWith(opts Options, settings string) (*Backend, error) {
	return openWith(opts, func(c sqldriver.Connector, setup string) (sqldriver.Connector, string) {
		const question = "SHOW STATUS"
		return c, strings.Replace(setup, question, settings+question, 1)
	})
}

func openWith(opts Options, change func(sqldriver.Connector, string) (sqldriver.Connector, string)) (*Backend, error) {
	config.Fill(&opts)
	connector, database, err := opts.connector()
	if err != nil {
		return nil, err
	}
	connector, setup := change(connector, conn.Setup(database))
	return start(opts, connector, setup), nil
}

type prepared struct {
	sqldriver.Connector
	prelude string
}

func (p *prepared) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := p.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.(sqldriver.ExecerContext).ExecContext(ctx, p.prelude, nil); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%w: %w", ErrPrelude, err)
	}
	return conn, nil
}

// ErrPrelude means that the server does not allow the prelude of OpenAfter.
var ErrPrelude = fmt.Errorf("prelude is refused")

// OpenRefusing opens a backend that does not send a statement if the function refuse returns an
// error for the statement's text. The statement then fails with this error.
func OpenRefusing(opts Options, refuse func(text string) error) (*Backend, error) {
	return openWith(opts, func(c sqldriver.Connector, setup string) (sqldriver.Connector, string) {
		return &refusing{c, refuse}, setup
	})
}

type refusing struct {
	sqldriver.Connector
	refuse func(string) error
}

func (r *refusing) Connect(ctx context.Context) (sqldriver.Conn, error) {
	c, err := r.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &refusingConn{c.(sqlConn), r.refuse}, nil
}

type sqlConn interface {
	sqldriver.Conn
	sqldriver.ExecerContext
	sqldriver.QueryerContext
	sqldriver.SessionResetter
}

type refusingConn struct {
	sqlConn
	refuse func(string) error
}

func (c *refusingConn) ExecContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	if err := c.refuse(text); err != nil {
		return nil, err
	}
	return c.sqlConn.ExecContext(ctx, text, args)
}

func (c *refusingConn) QueryContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	if err := c.refuse(text); err != nil {
		return nil, err
	}
	return c.sqlConn.QueryContext(ctx, text, args)
}
