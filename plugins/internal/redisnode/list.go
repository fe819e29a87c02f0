package redisnode

import (
	"context"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"
)

// scanCount is how many keys a step of SCAN looks at.
const scanCount = 500

// Names returns the names of all locks that start with prefix. It scans the
// keys of the database without blocking the server, and may outlast ctx when
// that is cancelled.
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

// eachMaster calls f for the master, in a Cluster for all at the same time.
func (n *Node) eachMaster(ctx context.Context, f func(context.Context, *goredis.Client) error) error {
	if cluster, ok := n.client.(*goredis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, f)
	}
	return f(ctx, n.client.(*goredis.Client))
}
