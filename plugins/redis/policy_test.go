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
