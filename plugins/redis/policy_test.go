package redis

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// A server that begins to evict grants nothing any more, once it was looked at,
// and goes on renewing what is held.
func TestPolicyChangedWhileServing(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	notices := make(chan driver.Notice, 10)
	go func() { _ = b.Watch(ctx, func(n driver.Notice) { notices <- n }) }()
	r := acquire(t, b, lease("held", "o1"))
	must(t, c.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err())
	changed := time.Now()
	next := lease("next", "o2")
	eventually(t, "acquires are refused", func() bool {
		token, err := b.TryAcquire(ctx, next)
		if err == nil {
			next.Token = token
			must(t, b.Release(ctx, next))
			next.Token = 0
			return false
		}
		if !errors.Is(err, driver.ErrDenied) || !errors.Is(err, driver.ErrNotSent) || !strings.Contains(err.Error(), "allkeys-lru") {
			t.Fatalf("acquire: %v", err)
		}
		return true
	})
	t.Logf("refused after %v", time.Since(changed))
	if err := b.Check(ctx); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("check: %v", err)
	}
	must(t, b.Renew(ctx, r))
	must(t, c.ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Err())
	eventually(t, "renewed over a new connection", func() bool { return b.Renew(ctx, r) == nil })
	if n := <-notices; n.Kind != driver.NoticeDown || !errors.Is(n.Err, driver.ErrDenied) {
		t.Errorf("the first notice is %+v", n)
	}
	must(t, c.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err())
	eventually(t, "granted again", func() bool { return b.Check(ctx) == nil })
	acquire(t, b, lease("next", "o4"))
	eventually(t, "the end is told", func() bool { return (<-notices).Kind == driver.NoticeUp })
}

// In a Cluster each master that answers is judged by itself, whether or not the
// others do: grants are refused while one of them evicts, and no longer.
func TestPolicyWithAMasterDown(t *testing.T) {
	servers, opts := startCluster(t, 3, "cluster-require-full-coverage no")
	ctx := t.Context()
	b := connect(t, opts)
	evicting := plain(t, servers[2])
	must(t, b.Release(ctx, acquire(t, b, lease("b", "before")))) // slot 3300, of the first master
	must(t, servers[1].Stop())
	for round := range 3 {
		must(t, evicting.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err())
		b.node.LookAgain(ctx, *b.server.Load(), b.address())
		_, err := b.TryAcquire(ctx, lease("b", "o1"))
		if !errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), "allkeys-lru") {
			t.Fatalf("round %d: acquire while a master evicts: %v", round, err)
		}
		must(t, evicting.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err())
		b.node.LookAgain(ctx, *b.server.Load(), b.address())
		must(t, b.Release(ctx, acquire(t, b, lease("b", "o2"))))
	}
}

// A master that evicts and stops to answer is not taken for one that does not: it
// may go on with what was sent to it.
func TestPolicyOfAFrozenMaster(t *testing.T) {
	servers, opts := startCluster(t, 3, "cluster-require-full-coverage no")
	ctx := t.Context()
	opts.RequestTimeout = 200 * time.Millisecond
	b := connect(t, opts)
	must(t, b.Check(ctx))
	evicting := plain(t, servers[2])
	must(t, evicting.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err())
	b.node.LookAgain(ctx, *b.server.Load(), b.address())
	must(t, servers[2].Freeze())
	b.node.LookAgain(ctx, *b.server.Load(), b.address())
	if err := b.node.Refusal(); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("while a master that evicts is frozen: %v", err)
	}
	must(t, servers[2].Resume())
	must(t, evicting.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err())
	eventually(t, "the refusal ends", func() bool {
		b.node.LookAgain(ctx, *b.server.Load(), b.address())
		return b.node.Refusal() == nil
	})
}
