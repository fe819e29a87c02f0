package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"fmt"

	"github.com/lockbench/lockbench/plugins/internal/config"
	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
)

// SettleFor is how long a withdrawal waits at most before it puts a tombstone.
const SettleFor = settleFor

// SlowestAfter is when a renewal that has time is taken to wait for a row.
const SlowestAfter = slowestAfter

// Purge is what a host does every hour.
func (b *Backend) Purge(ctx context.Context) (int, error) { return b.purge(ctx) }

// OpenAfter opens a backend each of whose connections has first run prelude,
// as the server's init_connect would.
func OpenAfter(opts Options, prelude string) (*Backend, error) {
	config.Fill(&opts)
	connector, database, err := opts.connector()
	if err != nil {
		return nil, err
	}
	return start(opts, &prepared{connector, prelude}, conn.Setup(database)), nil
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
