package memory

import (
	"context"
	"slices"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

func (b *backend) Proclaim(ctx context.Context, r driver.Request) error {
	return b.held(ctx, r, func(s *Store, e *entry, _ time.Time) error {
		e.grant.Value = slices.Clone(r.Value)
		s.set(e, e.grant)
		return nil
	})
}

func (b *backend) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	return kit.Follow(ctx, time.Hour, func() (h driver.Holder, changed <-chan struct{}, err error) {
		changed = b.store.changed.Next()
		h, err = b.Inspect(ctx, name)
		return h, changed, err
	}, emit)
}
