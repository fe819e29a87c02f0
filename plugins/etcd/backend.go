package etcd

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/config"
)

const (
	// assumedTTLMin is claimed until the server was asked: what one with the
	// stock election timeout of 1 s grants at least.
	assumedTTLMin = 2 * time.Second
	ttlStep       = time.Second
	ttlMax        = 24 * time.Hour
)

var claims = driver.Properties{
	Name:           "etcd",
	Fencing:        driver.FencingStrict,
	Scope:          driver.ScopeShared,
	TTLMin:         assumedTTLMin,
	TTLStep:        ttlStep,
	TTLMax:         ttlMax,
	FIFO:           true,
	Durability:     "raft, majority fsync unless --unsafe-no-fsync",
	SurvivesPlugin: true,
	Powers: []driver.Power{
		driver.PowerWaiter, driver.PowerWatcher, driver.PowerBatcher, driver.PowerAdmin, driver.PowerStarter,
	},
}

// Backend is a host's connection to a cluster. It has every optional power. All its
// methods may be called from any number of goroutines.
type Backend struct {
	opts   Options
	source *config.Source
	space  space

	ctx    context.Context // ends when Close is called
	cancel context.CancelFunc
	life   sync.Mutex
	closed bool
	group  sync.WaitGroup // every goroutine of the backend

	members members
	mint    mint
	writer  writer
	pulse   pulse
	leases  leases
	held    held
	hub     hub
	health  health
	ttls    ttls
	rivals  rivals

	mu         sync.Mutex
	properties driver.Properties
	learning   chan struct{} // holds one while a server is asked
	bars       *lease        // for the keys of withdrawn owners
	barCount   int
}

var _ interface {
	driver.Backend
	driver.Waiter
	driver.Watcher
	driver.Batcher
	driver.Admin
	driver.Starter
} = (*Backend)(nil)

// Open makes a Backend on the cluster that opts describe; nil and zero fields mean
// the defaults. It does not wait for a member to answer. The error wraps
// [driver.ErrConfig].
func Open(opts *Options) (*Backend, error) {
	if opts == nil {
		opts = &Options{}
	}
	o := *opts
	config.Fill(&o)
	return open(o)
}

func open(o Options) (*Backend, error) {
	opts, source, err := o.complete()
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", config.Invalid(err))
	}
	b := &Backend{opts: opts, source: source, space: newSpace(opts.Prefix), properties: claims, learning: make(chan struct{}, 1)}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.members.init(b)
	b.mint.init(b)
	b.writer.init(b)
	b.pulse.init(b)
	b.leases.init(b)
	b.held.init(b)
	b.hub.init(b)
	b.health.init(b)
	b.ttls.init(b)
	b.spawn(b.pulse.run)
	b.spawn(b.held.run)
	b.spawn(b.hub.run)
	b.spawn(b.health.run)
	b.spawn(func() { _ = b.learn(b.ctx) }) // tried again by Check
	return b, nil
}

// Properties returns the claims, with what was learned from the server.
func (b *Backend) Properties() driver.Properties {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.properties
	p.Powers = slices.Clone(p.Powers)
	return p
}

// Check reads through the consensus, which proves a quorum, and writes a key
// that nobody reads, which proves the right to write.
func (b *Backend) Check(ctx context.Context) error {
	if err := b.learn(ctx); err != nil {
		return err
	}
	s := &step{name: "", req: probe(b.space)}
	b.writer.submit(s)
	if err := s.wait(ctx, b); err != nil {
		return err
	}
	return b.wrap(s.err)
}

// Close ends connections and goroutines. Leases run on in the store.
func (b *Backend) Close(ctx context.Context) error {
	b.life.Lock()
	b.closed = true
	b.life.Unlock()
	b.cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.group.Wait()
		b.writer.steps.Close()
		b.members.close()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("etcd: close: %w", ctx.Err())
	}
}

// spawn runs f in a goroutine that Close waits for, unless it was called.
func (b *Backend) spawn(f func()) bool {
	b.life.Lock()
	defer b.life.Unlock()
	if !b.closed {
		b.group.Go(f)
	}
	return !b.closed
}

// checkTTL refuses what etcd would silently round: it counts in whole seconds
// and raises what is below its minimum.
func (b *Backend) checkTTL(ttl time.Duration) error {
	b.mu.Lock()
	least := b.properties.TTLMin
	b.mu.Unlock()
	switch {
	case ttl%ttlStep != 0:
		return fmt.Errorf("etcd: %w: TTL %v is not a multiple of %v, in which etcd counts", driver.ErrInvalid, ttl, ttlStep)
	case ttl < least:
		return errBelow(ttl, least)
	case ttl > ttlMax:
		return fmt.Errorf("etcd: %w: TTL %v is above the maximum of %v", driver.ErrInvalid, ttl, ttlMax)
	}
	return nil
}

func errBelow(ttl, least time.Duration) error {
	return fmt.Errorf("etcd: %w: TTL %v is below the minimum of %v, which the server derives from its election timeout", driver.ErrInvalid, ttl, least)
}
