package mysql

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
	"github.com/lockbench/lockbench/plugins/mysql/internal/statement"
)

// Proclaim is one statement.
func (b *Backend) Proclaim(ctx context.Context, r driver.Request) error {
	return b.change(ctx, "proclaim", r, func(ctx context.Context, s *conn.Session) (int64, error) {
		n, _, err := s.Exec(ctx, statement.Proclaim(b.table, r))
		return n, err
	})
}

// observeEvery is how often an observer looks. A leader changes its value or
// goes without telling anybody but the next in the queue.
const observeEvery = 25 * time.Millisecond

// Observe asks every 25 ms.
func (b *Backend) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	return driver.PollObserve(ctx, b, name, observeEvery, emit)
}
