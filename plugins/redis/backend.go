package redis

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/driver/config"
	"github.com/lockbench/lockbench/plugins/internal/kit"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

// Backend is a host's access to one server, Sentinel group or Cluster. It is a driver.Waiter,
// Observer, Watcher, Batcher, Admin and Starter. Any number of goroutines may call its methods.
type Backend struct {
	target    target
	sentinels *config.Source // reads the sentinels' password file; nil if there is none
	node      *redisnode.Node
	server    atomic.Pointer[redisnode.Server] // the newest connection's server; nil before the first
	links     *redisnode.Links
	identity  kit.Identity // used only for a single server, not with a Cluster or sentinels

	background *kit.Group // runs checks and listings until Close
}

var _ interface {
	driver.Backend
	driver.Waiter
	driver.Watcher
	driver.Batcher
	driver.Admin
	driver.Starter
} = (*Backend)(nil)

// Open makes a Backend and does not wait for the store. Nil options and zero fields mean the
// defaults. An error wraps driver.ErrConfig and names the wrong configuration key.
func Open(opts *Options) (*Backend, error) {
	return open(config.Filled(opts))
}

func open(opts Options) (*Backend, error) {
	t, err := opts.resolve()
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	keys, err := redisnode.NewKeys(t.opts.Prefix, t.opts.Cluster)
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	b := &Backend{target: t, background: kit.NewGroup(), links: &redisnode.Links{Labels: t.topology == redisnode.Alone}}
	b.identity.Addr, b.identity.Log = b.address(), t.opts.Logger
	if b.sentinels, err = t.opts.sentinelSource(); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	client, err := t.newClient(b.links, b.connected)
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	o := redisnode.Options{
		Keys: keys, ID: rand.Text(), Batches: t.opts.PoolSize,
		WaitReplicas: t.opts.WaitReplicas, WaitTimeout: t.opts.WaitTimeout, Silence: t.opts.RequestTimeout, PingEvery: 2 * t.opts.LookEvery,
	}
	if t.topology != redisnode.Cluster {
		o.Links = b.links
	}
	b.node = redisnode.NewNode(client, o)
	return b, nil
}

func wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redis: %s %q: %w", op, name, err)
}

// TryAcquire asks once for the lock r.Name; see driver.Lock.
func (b *Backend) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	reply := b.do(ctx, driver.Op{Kind: driver.OpAcquire, Request: r})
	return reply.Token, reply.Err
}

// Renew prolongs a lease; see driver.Lock.
func (b *Backend) Renew(ctx context.Context, r driver.Request) error {
	return b.do(ctx, driver.Op{Kind: driver.OpRenew, Request: r}).Err
}

// Release ends a lease; see driver.Lock.
func (b *Backend) Release(ctx context.Context, r driver.Request) error {
	return b.do(ctx, driver.Op{Kind: driver.OpRelease, Request: r}).Err
}

// Withdraw undoes the owner's requests for the lock, even those that arrive later; see driver.Lock.
func (b *Backend) Withdraw(ctx context.Context, name, owner string) error {
	return b.do(ctx, driver.Op{Kind: driver.OpWithdraw, Request: driver.Request{Name: name, Owner: owner}}).Err
}

// Batch executes many operations in one round trip; see driver.Batcher.
func (b *Backend) Batch(ctx context.Context, ops []driver.Op) []driver.Result {
	results := b.node.Do(ctx, ops...)
	for i := range results {
		results[i] = explain(ops[i], results[i])
	}
	return results
}

// Start starts one operation and does not wait for its result; see driver.Starter.
func (b *Backend) Start(ctx context.Context, op driver.Op, done func(driver.Result)) {
	b.node.Start(ctx, op, func(res driver.Result) { done(explain(op, res)) })
}

func (b *Backend) do(ctx context.Context, op driver.Op) driver.Result {
	return explain(op, b.node.Do(ctx, op)[0])
}

var verbs = map[driver.OpKind]string{
	driver.OpAcquire: "acquire", driver.OpRenew: "renew", driver.OpRelease: "release", driver.OpWithdraw: "withdraw",
}

func explain(op driver.Op, res driver.Result) driver.Result {
	if res.Err != nil {
		res.Err = wrap(cmp.Or(verbs[op.Kind], "batch"), op.Name, res.Err)
	}
	return res
}

// Wait puts r.Owner into the lock's queue. It returns when the store has granted
// r.Owner the lock, or when r.Owner should call TryAcquire; see driver.Waiter.
func (b *Backend) Wait(ctx context.Context, r driver.Request, most time.Duration) (driver.Grant, error) {
	_, g, err := b.node.Wait(ctx, r, most, nil)
	if err != nil && ctx.Err() != nil {
		return g, ctx.Err()
	}
	return g, wrap("wait for", r.Name, err)
}

// Inspect returns the holder of the lock called name; see driver.Lock.
func (b *Backend) Inspect(ctx context.Context, name string) (driver.Holder, error) {
	h, err := b.node.Inspect(ctx, name)
	return h, wrap("inspect", name, err)
}

// Properties returns what the backend promises, and the version and durability
// of the server of the newest connection.
func (b *Backend) Properties() driver.Properties {
	if s := b.server.Load(); s != nil {
		return properties(s.Durability, s.Version)
	}
	return properties("unknown", "")
}

// Close closes all connections and ends all goroutines; see driver.Backend.
func (b *Backend) Close(ctx context.Context) error {
	b.background.End()
	err := b.node.Close(ctx)
	b.background.Wait()
	if err != nil {
		return fmt.Errorf("redis: close: %w", err)
	}
	return nil
}

// Break ends the lease of the lock called name if the lease has this token; see driver.Admin. A
// lock that another program took by SET NX has no token, so Break cannot end it.
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	return wrap("break", name, b.node.Break(ctx, name, token))
}

// List calls emit for each held lock; see driver.Admin. It reads the database by SCAN, which does
// not block the server. A key of any type that another program wrote under Options.Prefix counts as
// a held lock too.
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

// lookEvery is the interval at which Observe reads a lock's key. Observe must read the key, because
// other kinds of clients publish nothing when they take or delete it.
const lookEvery = 250 * time.Millisecond

// Proclaim replaces the value that a lease publishes; see driver.Lock.
func (b *Backend) Proclaim(ctx context.Context, r driver.Request) error {
	return wrap("proclaim", r.Name, b.node.Proclaim(ctx, r))
}

// Observe follows the holder of the lock called name; see driver.Observer. The store pushes changes
// that this package makes on any host. To see other changes, Observe reads the key four times a
// second, and when the holder's TTL ends.
func (b *Backend) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	err := b.node.Observe(ctx, name, lookEvery, emit)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return wrap("observe", name, err)
}

// Watch reports when the store becomes unreachable or reachable, and when its settings make grants
// unsafe; see driver.Watcher. It watches the connection for wake-ups. The backend always reads from
// this connection, so it notices at once when the connection ends.
func (b *Backend) Watch(ctx context.Context, emit func(driver.Notice)) error {
	up, last := true, 0
	for {
		link, moved := b.node.Wakeups.Link()
		turned, refused := b.node.Turned.Next(), b.node.Refusal()
		changed := link.Epoch != last
		switch {
		case up && refused != nil:
			emit(driver.Notice{Kind: driver.NoticeDown, Err: refused})
			up = false
		case up && changed && (!link.Up || last > 0):
			emit(driver.Notice{Kind: driver.NoticeDown, Err: redisnode.Explain(link.Err)})
			up = false
		}
		if link.Up && !up && refused == nil {
			emit(driver.Notice{Kind: driver.NoticeUp})
			up = true
		}
		last = link.Epoch
		select {
		case <-turned:
		case <-moved:
		case <-b.background.Done():
			return driver.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
