package redis

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/config"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

// Backend is a connection to one store. It has every optional capability. All its
// methods may be called from any number of goroutines.
type Backend struct {
	target    target
	client    goredis.UniversalClient
	sentinels *config.Source // of their password; nil where it is in no file
	node      *redisnode.Node
	wakeups   *redisnode.Wakeups
	server    atomic.Pointer[redisnode.Server] // of the newest connection; nil before

	mu       sync.Mutex
	isClosed bool
	closed   chan struct{}
	asking   sync.WaitGroup // checks and listings under way
}

var _ interface {
	driver.Backend
	driver.Waiter
	driver.Watcher
	driver.Batcher
	driver.Admin
	driver.Starter
} = (*Backend)(nil)

// Open makes a Backend; nil options and zero fields mean the defaults. It does
// not wait for the store. The error wraps driver.ErrConfig and names the key.
func Open(opts *Options) (*Backend, error) {
	return open(config.Filled(opts))
}

func open(o Options) (*Backend, error) {
	t, err := o.resolve()
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	keys, err := redisnode.NewKeys(t.opts.Prefix, t.opts.Cluster)
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	b := &Backend{target: t, closed: make(chan struct{})}
	if b.sentinels, err = t.opts.sentinelSource(); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	if b.client, err = t.newClient(b.connected); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	b.node = redisnode.NewNode(b.client, redisnode.Options{
		Keys: keys, Batches: t.opts.PoolSize, Explain: redisnode.Explain,
		WaitReplicas: t.opts.WaitReplicas, WaitTimeout: t.opts.WaitTimeout,
	})
	b.wakeups = redisnode.NewWakeups(b.client, keys, rand.Text(), redisnode.Explain)
	return b, nil
}

// wrap names the operation, once.
func wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redis: %s %q: %w", op, name, err)
}

// TryAcquire grants r.Name; see driver.Lock.
func (b *Backend) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	reply := b.do(ctx, driver.Op{Kind: driver.OpAcquire, Request: r})
	return reply.Token, reply.Err
}

// Renew prolongs a lease; see driver.Lock.
func (b *Backend) Renew(ctx context.Context, r driver.Request) error {
	return b.do(ctx, driver.Op{Kind: driver.OpRenew, Request: r}).Err
}

// Release ends a lease, or withdraws an owner; see driver.Lock.
func (b *Backend) Release(ctx context.Context, r driver.Request) error {
	return b.do(ctx, driver.Op{Kind: driver.OpRelease, Request: r}).Err
}

// Batch does many operations in one round trip; see driver.Batcher.
func (b *Backend) Batch(ctx context.Context, ops []driver.Op) []driver.Result {
	sent := time.Now()
	results := make([]driver.Result, len(ops))
	for i, reply := range b.node.Do(ctx, ops...) {
		results[i] = b.note(ops[i], reply, sent)
	}
	return results
}

// Start does one operation without waiting for it; see driver.Starter.
func (b *Backend) Start(ctx context.Context, op driver.Op, done func(driver.Result)) {
	sent := time.Now()
	b.node.Start(ctx, op, func(r redisnode.Reply) { done(b.note(op, r, sent)) })
}

func (b *Backend) do(ctx context.Context, op driver.Op) driver.Result {
	sent := time.Now()
	return b.note(op, b.node.Do(ctx, op)[0], sent)
}

// note keeps the local half of the queue in step with the store's.
func (b *Backend) note(op driver.Op, reply redisnode.Reply, sent time.Time) driver.Result {
	verb := "renew"
	switch op.Kind {
	case driver.OpAcquire:
		verb = "acquire"
		if reply.Err == nil {
			b.wakeups.Leave(op.Owner)
		}
		if reply.Queued {
			b.wakeups.Queued(op.Owner, sent)
		}
	case driver.OpRelease:
		verb = "release"
		if op.Token == 0 {
			verb = "withdraw"
			b.wakeups.Leave(op.Owner)
		}
	}
	return driver.Result{Token: reply.Token, Err: wrap(verb, op.Name, reply.Err)}
}

// Inspect returns who holds name; see driver.Lock.
func (b *Backend) Inspect(ctx context.Context, name string) (driver.Holder, error) {
	h, err := b.node.Inspect(ctx, name, false)
	return h, wrap("inspect", name, err)
}

// Proclaim replaces the value that a lease publishes; see driver.Elector.
func (b *Backend) Proclaim(ctx context.Context, r driver.Request) error {
	return wrap("proclaim", r.Name, b.node.Proclaim(ctx, r))
}

// Properties returns what the backend claims, and what the newest connection
// learned about the server.
func (b *Backend) Properties() driver.Properties {
	if s := b.server.Load(); s != nil {
		return properties(s.Durability, s.Version)
	}
	return properties("unknown", "")
}

// Close ends connections and goroutines; see driver.Backend.
func (b *Backend) Close(ctx context.Context) error {
	b.mu.Lock()
	again := b.isClosed
	b.isClosed = true
	b.mu.Unlock()
	if again {
		return nil
	}
	close(b.closed)
	b.wakeups.Close()
	err := b.node.Close(ctx)
	if closeErr := b.client.Close(); err == nil && !errors.Is(closeErr, goredis.ErrClosed) {
		err = closeErr
	}
	b.asking.Wait()
	if err != nil {
		return fmt.Errorf("redis: close: %w", err)
	}
	return nil
}
