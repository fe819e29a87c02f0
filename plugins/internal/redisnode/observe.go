package redisnode

import (
	"context"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// Observe follows the holder of the lock called name; see [kit.Follow]. The store reports each
// change made by this package. To find other changes, Observe reads the lock at the given interval.
func (n *Node) Observe(ctx context.Context, name string, every time.Duration, emit func(driver.Holder)) error {
	changes, stop := n.Wakeups.listen(ctx, n.opts.Keys.changeChannel(name))
	defer stop()
	return kit.Follow(ctx, every, func() (driver.Holder, <-chan struct{}, error) {
		holders, err := n.inspect(ctx, "1", name)
		return holders[0], changes, err
	}, emit)
}

// listen subscribes to the store's channel called name. The returned channel gets a signal when a
// message comes, when the subscription begins, and when the connection breaks.
func (w *Wakeups) listen(ctx context.Context, name string) (<-chan struct{}, func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.start()
	listeners := w.changes[name]
	if listeners == nil {
		listeners = map[chan struct{}]struct{}{}
		w.changes[name] = listeners
		if w.pubsub != nil {
			// An error breaks the connection, and the next connection subscribes again.
			_ = w.pubsub.Subscribe(ctx, name)
		}
	}
	l := make(chan struct{}, 1)
	listeners[l] = struct{}{}
	return l, func() { w.unlisten(context.WithoutCancel(ctx), name, l) }
}

func (w *Wakeups) unlisten(ctx context.Context, name string, l chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.changes[name], l)
	if len(w.changes[name]) > 0 {
		return
	}
	delete(w.changes, name)
	if w.pubsub != nil {
		_ = w.pubsub.Unsubscribe(ctx, name)
	}
}

func (w *Wakeups) wakeObservers(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.changes[name] {
		kit.Wake(l)
	}
}

const scanCount = 500

// Names returns the lock names that start with prefix. It finds them by SCAN, which does not block
// the server. It may return after ctx has ended.
func (n *Node) Names(ctx context.Context, prefix string) (map[string]struct{}, error) {
	var mu sync.Mutex
	names := map[string]struct{}{} // SCAN may return a key twice
	return names, n.eachMaster(ctx, func(ctx context.Context, c *goredis.Client) error {
		for cursor := uint64(0); ; {
			keys, next, err := c.Scan(ctx, cursor, n.opts.Keys.pattern(), scanCount).Result()
			if err != nil {
				return Explain(err)
			}
			mu.Lock()
			for _, key := range keys {
				if name, ok := n.opts.Keys.Name(key); ok && strings.HasPrefix(name, prefix) {
					names[name] = struct{}{}
				}
			}
			mu.Unlock()
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	})
}

// eachMaster calls f with a client of the server. In a Cluster, it calls f for all masters at once.
func (n *Node) eachMaster(ctx context.Context, f func(context.Context, *goredis.Client) error) error {
	if cluster, ok := n.client.(*goredis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, f)
	}
	return f(ctx, n.client.(*goredis.Client))
}
