package redisnode

import (
	"context"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// scanCount is how many keys a step of SCAN looks at.
const scanCount = 500

// Names calls found with the name of every lock that starts with prefix, with
// some more than once, and in a Cluster from several goroutines. It scans the
// keys of the database without blocking the server, and may outlast ctx when
// that is cancelled.
func (n *Node) Names(ctx context.Context, prefix string, found func(name string)) error {
	return n.eachMaster(ctx, func(ctx context.Context, c *goredis.Client) error {
		for cursor := uint64(0); ; {
			keys, next, err := c.ScanType(ctx, cursor, n.opts.Keys.pattern(), scanCount, "string").Result()
			if err != nil {
				return Explain(err)
			}
			for _, key := range keys {
				if name, ok := n.opts.Keys.Name(key); ok && strings.HasPrefix(name, prefix) {
					found(name)
				}
			}
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
