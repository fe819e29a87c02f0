package redis

import (
	"errors"
	"net"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
)

// While a Cluster's slot is moved to another node, key by key, no lease is lost. No lock in the
// slot is granted during the move, because the token might be lower than an earlier token.
func TestMovingSlot(t *testing.T) {
	servers, opts := startCluster(t, 2)
	ctx := t.Context()
	b := connect(t, opts)
	const slot = 3300 // the slot of "b", on the first node
	r := acquire(t, b, lease("b", "o1"))
	from, to := plain(t, servers[0]), plain(t, servers[1])
	id := func(c *goredis.Client) string {
		t.Helper()
		text, err := c.Do(ctx, "cluster", "myid").Text()
		must(t, err)
		return text
	}
	must(t, to.Do(ctx, "cluster", "setslot", slot, "importing", id(from)).Err())
	must(t, from.Do(ctx, "cluster", "setslot", slot, "migrating", id(to)).Err())
	alive := func(when string) {
		t.Helper()
		if err := b.Renew(ctx, r); err != nil {
			t.Errorf("renew %s: %v", when, err)
		}
		if h, err := b.Inspect(ctx, "b"); err != nil || h.Token != r.Token {
			t.Errorf("inspect %s: %+v, %v", when, h, err)
		}
		_, err := b.TryAcquire(ctx, lease("b", "o2"))
		if !errors.Is(err, driver.ErrHeld) && !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("acquire %s: %v", when, err)
		}
	}
	alive("before the first key is moved")

	host, port, err := net.SplitHostPort(servers[1].Addr())
	must(t, err)
	move := func(key string) {
		t.Helper()
		must(t, from.Do(ctx, "migrate", host, port, key, 0, 5000).Err())
	}
	keys, err := from.Do(ctx, "cluster", "getkeysinslot", slot, 100).StringSlice()
	must(t, err)
	move("b")
	alive("after the lock was moved")
	for _, key := range keys {
		if key != "b" {
			move(key)
		}
	}
	alive("after all keys were moved")
	must(t, b.Release(ctx, r))
	if _, err := b.TryAcquire(ctx, lease("b", "o3")); !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, driver.ErrNotSent) {
		t.Errorf("acquire of a free lock whose slot is being moved: %v", err)
	}
	for _, s := range servers {
		must(t, plain(t, s).Do(ctx, "cluster", "setslot", slot, "node", id(to)).Err())
	}
	var next driver.Request
	eventually(t, "granted after the move", func() bool {
		next = lease("b", "o4")
		next.Token, err = b.TryAcquire(ctx, next)
		return err == nil
	})
	if next.Token <= r.Token {
		t.Errorf("token %d after the move is not above %d", next.Token, r.Token)
	}
}
