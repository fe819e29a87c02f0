package mysql

import (
	"context"
	"slices"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
	"github.com/lockbench/lockbench/plugins/mysql/internal/statement"
)

// Proclaim is one statement.
func (b *Backend) Proclaim(ctx context.Context, r driver.Request) error {
	return b.proclaims.one(ctx, r).Err
}

// observeEvery is how often a host asks about all that it observes. A leader
// changes its value or goes without telling anybody but the next in the queue.
const observeEvery = 25 * time.Millisecond

// Observe shares a query each 25 ms with all others of the host.
func (b *Backend) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	return b.observers.Follow(ctx, name, emit)
}

// look returns the holders of names.
func (b *Backend) look(names []string) map[string]kit.Seen {
	ctx, cancel := b.statement(b.background)
	defer cancel()
	seen := make(map[string]kit.Seen, len(names))
	for some := range slices.Chunk(names, lookAtOnce) {
		holders, err := b.holders(ctx, statement.Inspect(b.table, some...))
		for _, h := range holders {
			seen[h.Name] = kit.Seen{Holder: h}
		}
		if err != nil {
			for _, name := range some {
				seen[name] = kit.Seen{Err: conn.StatementError("observe", name, err)}
			}
		}
	}
	return seen
}
