package redis

import (
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
)

func TestForeignHolder(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	ctx := t.Context()

	must(t, c.Do(ctx, "set", "x", "their secret \x01", "nx", "px", 50_000).Err())
	_, err := b.TryAcquire(ctx, lease("x", "o1"))
	if by := held(t, err); by.Owner != "their secret ?" || by.Token != 0 || by.TTL <= 20*time.Second || by.TTL > 50*time.Second {
		t.Errorf("refused: %+v", by)
	}
	must(t, b.Withdraw(ctx, "x", "o1"))
	if err := b.Break(ctx, "x", 0); err == nil {
		t.Error("broke a foreign holder")
	}
	if v := c.Get(ctx, "x").Val(); !strings.HasPrefix(v, "their") {
		t.Errorf("their value is now %q", v)
	}

	must(t, c.Set(ctx, "forever", strings.Repeat("x", 1000), 0).Err())
	_, err = b.TryAcquire(ctx, lease("forever", "o2"))
	if by := held(t, err); by.TTL >= 0 || len(by.Owner) > 80 {
		t.Errorf("refused: %+v", by)
	}
	must(t, c.RPush(ctx, "list", "x").Err())
	_, err = b.TryAcquire(ctx, lease("list", "o2"))
	if by := held(t, err); by.Owner != "(list)" || by.TTL >= 0 {
		t.Errorf("refused: %+v", by)
	}
	if h, err := b.Inspect(ctx, "list"); err != nil || h.Owner != "(list)" {
		t.Errorf("inspect: %+v, %v", h, err)
	}
	listed := false
	must(t, b.List(ctx, "", func(h driver.Holder) bool { listed = listed || h.Name == "list" && h.Owner == "(list)"; return true }))
	if !listed {
		t.Error("a key that is no string excludes, and is not listed")
	}
	must(t, c.Set(ctx, "empty", "", 0).Err())
	if h, err := b.Inspect(ctx, "empty"); err != nil || !h.Held() {
		t.Errorf("inspect: %+v, %v", h, err)
	}

	r := acquire(t, b, lease("ours", "o2"))
	if err := c.Do(ctx, "set", "ours", "v", "nx", "px", 5000).Err(); err != goredis.Nil {
		t.Errorf("SET NX over our lock: %v", err)
	}
	must(t, b.Renew(ctx, r))
}

// A HeldError says when another program's key expires. At that time, a waiter gets the lock.
func TestWaiterFollowsForeignExpiry(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	const ttl = time.Second
	began := time.Now()
	must(t, c.Do(t.Context(), "set", "x", "v", "nx", "px", ttl.Milliseconds()).Err())
	_, err := b.TryAcquire(t.Context(), lease("x", "o1"))
	if left := held(t, err).TTL; left > ttl || left < ttl-time.Since(began)-time.Millisecond {
		t.Errorf("refused for %v of %v, %v after it began", left, ttl, time.Since(began))
	}
	receive(t, queue(t, b, lease("x", "o1")), "the waiter")
	if took := time.Since(began); took < ttl {
		t.Errorf("granted after %v of %v", took, ttl)
	}
}

func TestExpiredHolderCannotHarm(t *testing.T) {
	s := start(t, nil)
	b := connect(t, at(s))
	ctx := t.Context()
	r := lease("a", "slow")
	r.TTL = 20 * time.Millisecond
	r = acquire(t, b, r)
	next := lease("a", "next")
	eventually(t, "expired", func() bool {
		token, err := b.TryAcquire(ctx, next)
		next.Token = token
		return err == nil
	})
	for what, err := range map[string]error{"renew": b.Renew(ctx, r), "release": b.Release(ctx, r), "proclaim": b.Proclaim(ctx, r)} {
		if by := notHeld(t, err); by.Owner != "next" {
			t.Errorf("%s by the expired holder: %+v", what, by)
		}
	}
	must(t, b.Withdraw(ctx, r.Name, r.Owner))
	must(t, b.Renew(ctx, next))
}
