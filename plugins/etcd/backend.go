package etcd

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/driver/config"
	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
	"github.com/lockbench/lockbench/plugins/etcd/internal/txn"
	"github.com/lockbench/lockbench/plugins/etcd/internal/watch"
)

const (
	// assumedTTLMin is the shortest TTL that Properties reports before a server has
	// answered. A server with the default election timeout of 1 s grants no shorter TTL.
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
	FirstSpan:      entryFor,
	Durability:     "raft, majority fsync unless --unsafe-no-fsync",
	SurvivesPlugin: true,
	Capabilities: []driver.Capability{
		driver.CapWaiter, driver.CapObserver, driver.CapWatcher, driver.CapBatcher, driver.CapAdmin, driver.CapStarter,
	},
}

// Backend is a host's connection to an etcd cluster. The result of Properties lists its optional
// capabilities. Goroutines may call its methods concurrently.
type Backend struct {
	*table
	server atomic.Value // string: the server's version, once known
}

var _ interface {
	driver.Backend
	driver.Waiter
	driver.Watcher
	driver.Batcher
	driver.Admin
	driver.Starter
} = (*Backend)(nil)

// Open makes a Backend for the cluster that opts describe. If opts is nil or a field is zero, the
// defaults apply. Open does not wait until a member answers. Its error wraps [driver.ErrConfig].
func Open(opts *Options) (*Backend, error) {
	return open(config.Filled(opts))
}

func open(o Options) (*Backend, error) {
	opts, source, err := o.complete()
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", config.Invalid(err))
	}
	b := &Backend{table: &table{
		space: newSpace(opts.Prefix), self: strconv.FormatUint(rand.Uint64(), 36) + "-", wake: make(chan struct{}, 1),
		entries: map[entryKey]*entry{}, keys: map[string]*entry{},
	}}
	b.cluster = cluster.New(cluster.Options{
		Address: opts.Address, Connect: opts.Connect, Source: source, Logger: opts.Logger,
		Prefix: opts.Prefix, Probe: b.space.tombstones,
	})
	b.leases = newLeases(b.cluster)
	b.txns = txn.New(b.cluster, b.space.generation, func() {
		opts.Logger.Warn("etcd: the store has lost its data: all leases of before are gone")
		// If only the key with the token base was deleted, old locks still exist, and must expire.
		b.leases.retireAll()
	})
	b.watches = watch.New(b.cluster)
	b.cluster.Go(b.run)
	b.cluster.Go(func() { _ = b.learn(b.cluster.Context()) }) // Check tries again
	return b, nil
}

// Properties returns what the backend promises. Once a server has answered, the result has the
// server's version and its shortest TTL.
func (b *Backend) Properties() driver.Properties {
	p := claims
	p.Capabilities = slices.Clone(p.Capabilities)
	p.TTLMin = b.leases.shortest()
	p.FirstSpan = b.leases.forWaiting().ttl
	p.Server, _ = b.server.Load().(string)
	return p
}

// Check sends a write whose condition never holds. The servers check rights and space as for any
// write, and send it through the consensus. So the answer proves a quorum, the right to write, and
// free space. The write costs one log entry but no revision. At most every 30 s, Check also
// connects to each member, to see whether all belong to one cluster.
func (b *Backend) Check(ctx context.Context) error {
	if err := b.learn(ctx); err != nil {
		return err
	}
	if err := b.cluster.Certain(ctx, true); err != nil {
		return err
	}
	s := &txn.Step{Req: &pb.TxnRequest{
		Compare: []*pb.Compare{txn.At(b.space.tombstones, -1)},
		Success: []*pb.RequestOp{txn.Put(b.space.tombstones, nil, 0), txn.Exists(b.space.names)},
	}}
	return b.cluster.Untouched(b.txns.Run(ctx, s))
}

// learn asks a server for its version and for the shortest TTL that it grants.
func (b *Backend) learn(ctx context.Context) error {
	if b.server.Load() != nil {
		return nil
	}
	if _, err := b.txns.Generation(ctx); err != nil {
		return err
	}
	status, err := b.cluster.Status(ctx)
	version := "etcd " + status.GetVersion()
	switch {
	case cluster.Is(err, rpctypes.ErrPermissionDenied):
		version = "etcd" // some servers (3.5.30) show the status only to root
	case err != nil:
		return b.cluster.Wrap(err)
	}
	l, err := b.leases.get(ctx, purpose{ttl: ttlStep})
	if err != nil {
		return err
	}
	l.load.Add(-1)
	b.leases.setLeast(l.ttl)
	b.server.Store(version)
	return nil
}

// Close ends connections and goroutines. It revokes no etcd lease, so locks last until they expire.
func (b *Backend) Close(ctx context.Context) error {
	if err := b.cluster.Close(ctx, b.txns.Close); err != nil {
		return fmt.Errorf("etcd: close: %w", err)
	}
	return nil
}

// checkTTL refuses a TTL that etcd would silently change. etcd
// rounds TTLs to whole seconds, and raises a TTL below its minimum.
func (b *Backend) checkTTL(ttl time.Duration) error {
	least := b.leases.shortest()
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
