package redis

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// lookEvery bounds how late a change is seen that nobody publishes: a foreign
// client took or deleted the key.
const lookEvery = 250 * time.Millisecond

// Proclaim replaces the value that a lease publishes; see driver.Lock.
func (b *Backend) Proclaim(ctx context.Context, r driver.Request) error {
	return wrap("proclaim", r.Name, b.node.Proclaim(ctx, r))
}

// Observe follows the holder of name; see driver.Observer. Changes made by this
// backend, on any host, are pushed; for others it looks four times a second,
// and when the holder's TTL runs out.
func (b *Backend) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	err := b.node.Observe(ctx, name, lookEvery, emit)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return wrap("observe", name, err)
}
