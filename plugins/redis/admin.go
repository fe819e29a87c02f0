package redis

import (
	"context"
	"maps"
	"slices"

	"github.com/lockbench/lockbench/core/driver"
)

// Break ends a lease by its token; see driver.Admin. A foreign holder has no
// token and cannot be broken.
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	return wrap("break", name, b.node.Break(ctx, name, token))
}

// List tells of each held lock; see driver.Admin. It scans the keys of the
// database, without blocking the server. Keys of other clients under the prefix
// are listed as foreign holders, whatever their type.
func (b *Backend) List(ctx context.Context, prefix string, emit func(driver.Holder) bool) error {
	var names map[string]struct{}
	err := b.ask(ctx, func() (err error) {
		names, err = b.node.Names(ctx, prefix)
		return err
	})
	if err == nil {
		err = b.node.InspectAll(ctx, slices.Collect(maps.Keys(names)), emit)
	}
	return wrap("list", prefix, err)
}
