package redlock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/driver/config"
	"github.com/lockbench/lockbench/plugins/internal/kit"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

// Backend is a host's access to one set of nodes. It is a driver.Waiter, Observer, Watcher, Batcher
// and Admin. Any number of goroutines may call its methods.
type Backend struct {
	opts   Options
	keys   redisnode.Keys
	id     string // the id of this instance
	nodes  []*node
	quorum int
	log    *slog.Logger
	began  time.Time

	// sending is locked while requests are added to the nodes' queues. So all nodes get the requests
	// in the same order, and guessed tokens rise in this order.
	sending   sync.Mutex
	guessed   uint64
	repairing map[string]int // the number of lease copies under way, by owner

	contention contention
	observers  kit.Poller

	mu      sync.Mutex
	servers map[string]*node // the connected node of each run id, guarded by mu
	changed kit.Broadcast    // signals each change of a node's state

	background *kit.Group // refuses new requests after its end; cancel ends requests under way
	cancel     context.CancelFunc
}

var _ interface {
	driver.Backend
	driver.Waiter
	driver.Watcher
	driver.Batcher
	driver.Admin
} = (*Backend)(nil)

// Open makes a Backend and does not wait for the nodes. Nil options and zero fields mean the
// defaults. An error wraps driver.ErrConfig and names the wrong configuration key.
func Open(opts *Options) (*Backend, error) {
	return open(config.Filled(opts))
}

func open(o Options) (*Backend, error) {
	addrs, err := o.resolve()
	if err != nil {
		return nil, fmt.Errorf("redlock: %w", err)
	}
	keys, err := redisnode.NewKeys(o.Prefix, false)
	if err != nil {
		return nil, fmt.Errorf("redlock: %w", err)
	}
	b := &Backend{
		opts: o, keys: keys, id: rand.Text(), quorum: len(addrs)/2 + 1, log: cmp.Or(o.Logger, slog.Default()), began: time.Now(),
		background: kit.NewGroup(), repairing: map[string]int{}, servers: map[string]*node{},
	}
	b.contention.init()
	b.observers.Every, b.observers.Look, b.observers.Go = observeEvery, b.look, b.background.Go
	for i, a := range addrs {
		n, err := newNode(b, i, a)
		if err != nil {
			return nil, fmt.Errorf("redlock: %w", err)
		}
		b.nodes = append(b.nodes, n)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	for _, n := range b.nodes {
		n.start(firstConnect * o.NodeTimeout)
		b.background.Go(func() { n.run(ctx) })
	}
	return b, nil
}

func newClient(o Options, a redisnode.Address, links *redisnode.Links) (*goredis.Client, error) {
	c := o.Connect
	if err := redisnode.Take(&c, a); err != nil {
		return nil, err
	}
	u, err := redisnode.ClientOptions(c, o.PoolSize, a.TLS, o.Logger, links, nil)
	if err != nil {
		return nil, err
	}
	u.Addrs, u.DB = []string{a.Addr}, o.DB
	if a.DB >= 0 {
		u.DB = a.DB
	}
	simple := u.Simple()
	simple.Network = a.Network
	return goredis.NewClient(simple), nil
}

// clock returns the time since the backend was opened, in microseconds.
func (b *Backend) clock() int64 { return time.Since(b.began).Microseconds() }

func (b *Backend) send(requests ...*quorumRequest) error {
	b.sending.Lock()
	defer b.sending.Unlock()
	if b.background.Err() != nil {
		return driver.ErrClosed
	}
	for _, x := range requests {
		if x.kind == kindAcquire && x.token == 0 {
			x.token = b.guess()
		}
		if x.givesUp() {
			delete(b.repairing, x.owner)
		}
		x.open(len(b.nodes))
	}
	// The node with the queue gets the requests first, because a grant needs its vote.
	first := max(0, requests[0].queue)
	for i := range b.nodes {
		b.nodes[(first+i)%len(b.nodes)].enqueue(requests...)
	}
	return nil
}

// rest waits until the channel moved is closed by a node's change of state, or timeout fires.
func (b *Backend) rest(ctx context.Context, moved <-chan struct{}, timeout <-chan time.Time) error {
	select {
	case <-moved:
		return nil
	case <-timeout:
		return nil
	case <-b.background.Done():
		return driver.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// inspectServer asks the server behind conn about itself. It returns an error if the server is
// unsafe, or if another address in the list leads to the same server.
func (b *Backend) inspectServer(ctx context.Context, n *node, conn *goredis.Conn) (redisnode.Server, error) {
	s, err := n.store.Probe(ctx, conn)
	if err := errors.Join(s.Unsafe(n.addr, redisnode.Alone, n.identity.Load() != 0), redisnode.Explain(err)); err != nil {
		return s, err
	}
	if s.RunID == "" {
		return s, hiddenRunID(n.addr)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if other := b.servers[s.RunID]; other != nil {
		return s, duplicateNode(other.addr, n.addr)
	}
	b.servers[s.RunID] = n
	return s, nil
}

func hiddenRunID(addr string) error {
	return fmt.Errorf("%w: address: %s hides run_id in INFO, by which redlock tells nodes apart", driver.ErrDenied, addr)
}

func duplicateNode(a, b string) error {
	return fmt.Errorf("%w: address: %s and %s lead to one server, which would vote twice", driver.ErrDenied, a, b)
}

// closeGrace is the longest time for which Close sends missed requests to nodes. A plugin has 700
// ms for all of Close.
const closeGrace = 400 * time.Millisecond

// settle sends each node the missed requests that end leases or attempts. After Close, the backend
// can no longer send them.
func (b *Backend) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, closeGrace)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, b.opts.NodeTimeout/2) {
		owing := false
		for _, n := range b.nodes {
			owing = n.hurry() || owing
		}
		if !owing || ctx.Err() != nil {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// Close closes all connections and ends all goroutines; see driver.Backend. First, for at most 400
// ms (closeGrace), it sends releases to nodes that missed them.
func (b *Backend) Close(ctx context.Context) error {
	b.settle(ctx)
	b.sending.Lock()
	b.background.End()
	b.sending.Unlock()
	stop := context.AfterFunc(ctx, b.cancel)
	defer stop()
	b.background.Wait()
	b.cancel()
	var err error
	for _, n := range b.nodes {
		err = errors.Join(err, n.store.Close(ctx))
	}
	if err != nil {
		return fmt.Errorf("redlock: close: %w", err)
	}
	return nil
}

// jitter returns a random duration between d/2 and d.
func jitter(d time.Duration) time.Duration { return d/2 + mathrand.N(d/2+1) }
