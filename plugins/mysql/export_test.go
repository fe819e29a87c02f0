package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"fmt"

	mysqldriver "github.com/go-sql-driver/mysql"
)

// Purge is what a host does every hour.
func (b *Backend) Purge(ctx context.Context) (int, error) { return b.purge(ctx) }

// OpenAfter opens a backend each of whose connections has first run prelude,
// as the server's init_connect would.
func OpenAfter(opts Options, prelude string) (*Backend, error) {
	o, err := opts.check()
	if err != nil {
		return nil, err
	}
	cfg, err := o.dialer()
	if err != nil {
		return nil, err
	}
	connector, err := mysqldriver.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return open(o, &prepared{connector, prelude}, setup(cfg.DBName)), nil
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

// ErrPrelude: the server does not allow the prelude.
var ErrPrelude = fmt.Errorf("prelude is refused")
