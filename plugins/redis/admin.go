package redis

import (
	"context"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

// scanCount is how many keys a step of SCAN looks at.
const scanCount = 500

// Break ends a lease by its token; see driver.Admin. A foreign holder has no
// token and cannot be broken.
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	return wrap("break", name, b.node.Break(ctx, name, token))
}

// List tells of each held lock; see driver.Admin. It scans the keys of the
// database, without blocking the server. Strings of other clients under the
// prefix are listed as foreign holders.
func (b *Backend) List(ctx context.Context, prefix string, emit func(driver.Holder) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pages := make(chan []string)
	var scanned error
	err := b.spawn(func() {
		defer close(pages)
		scanned = b.scan(ctx, prefix, pages)
	})
	if err != nil {
		return wrap("list", prefix, err)
	}
	seen := map[string]bool{} // SCAN may return a key twice
	for {
		select {
		case names, more := <-pages:
			if !more {
				return wrap("list", prefix, scanned)
			}
			names = slices.DeleteFunc(names, func(name string) bool { return seen[name] })
			holders, err := b.node.InspectAll(ctx, names)
			if err != nil {
				return wrap("list", prefix, err)
			}
			for _, h := range holders {
				seen[h.Name] = true
				if h.Held() && !emit(h) {
					return nil
				}
			}
		case <-ctx.Done():
			return wrap("list", prefix, ctx.Err())
		}
	}
}

// scan sends the lock names that start with prefix, page by page.
func (b *Backend) scan(ctx context.Context, prefix string, names chan<- []string) error {
	master := func(ctx context.Context, c goredis.Cmdable) error {
		for cursor := uint64(0); ; {
			keys, next, err := c.ScanType(ctx, cursor, b.node.Keys().Pattern(), scanCount, "string").Result()
			if err != nil {
				return redisnode.Explain(err)
			}
			var page []string
			for _, key := range keys {
				if name, ok := b.node.Keys().Name(key); ok && strings.HasPrefix(name, prefix) {
					page = append(page, name)
				}
			}
			select {
			case names <- page:
			case <-ctx.Done():
				return ctx.Err()
			}
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	}
	if cluster, ok := b.client.(*goredis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, c *goredis.Client) error { return master(ctx, c) })
	}
	return master(ctx, b.client)
}
