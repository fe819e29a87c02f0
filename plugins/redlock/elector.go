package redlock

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/observe"
)

// Proclaim replaces the published value on a majority; see driver.Elector. A
// node that cannot be reached keeps the old value, until the lease ends.
func (b *Backend) Proclaim(ctx context.Context, r driver.Request) error {
	o := b.operation("proclaim", r, kindProclaim, string(r.Value))
	return b.do(ctx, o.decided(o.verdict))[0].Err
}

// observeEvery is how often an observer looks.
const observeEvery = 100 * time.Millisecond

// Observe follows the holder of name; see driver.Elector. It asks all nodes
// ten times a second, and when the holder's TTL runs out.
//
// Note: changes pushed by the nodes would have to be counted by majority too;
// one node's push says only that something is going on.
func (b *Backend) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	return observe.Follow(ctx, observeEvery, func() (driver.Holder, <-chan struct{}, error) {
		h, err := b.Inspect(ctx, name)
		return h, nil, err
	}, emit)
}
