package redlock

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// Proclaim replaces the published value on a majority; see driver.Lock. A
// node that cannot be reached keeps the old value, until the lease ends.
func (b *Backend) Proclaim(ctx context.Context, r driver.Request) error {
	o := b.operation("proclaim", r, kindProclaim, string(r.Value))
	return b.do(ctx, o.decided(o.verdict))[0].Err
}

// observeEvery is how often a host asks about all that it observes.
const observeEvery = 100 * time.Millisecond

// Observe follows the holder of name; see driver.Observer. It asks all nodes
// ten times a second, together with all others of the host.
//
// Note: changes pushed by the nodes would have to be counted by majority too;
// one node's push says only that something is going on.
func (b *Backend) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	return b.observers.Follow(ctx, name, emit)
}

// look returns the holders of names.
func (b *Backend) look(names []string) map[string]kit.Seen {
	holders, ops := make([]driver.Holder, len(names)), make([]*operation, len(names))
	for i, name := range names {
		ops[i] = b.inspect("observe", name, &holders[i])
	}
	seen := make(map[string]kit.Seen, len(names))
	for i, r := range b.do(b.background, ops...) {
		seen[names[i]] = kit.Seen{Holder: holders[i], Err: r.Err}
	}
	return seen
}
