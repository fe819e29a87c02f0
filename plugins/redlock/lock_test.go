package redlock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

func TestLease(t *testing.T) {
	nodes, b := cluster(t, nil)
	ctx := t.Context()

	one := lease("jobs", "one")
	one.Value = []byte("10.0.0.1:80")
	one = acquire(t, b, one)
	h, err := b.Inspect(ctx, "jobs")
	must(t, err)
	if h.Owner != "one" || h.Label != "host-1:77" || string(h.Value) != "10.0.0.1:80" || h.Token != one.Token {
		t.Errorf("inspect: %+v", h)
	}
	if h.TTL <= 5*time.Second || h.TTL > 10*time.Second || h.Waiters != 0 {
		t.Errorf("inspect: TTL %v, waiters %d", h.TTL, h.Waiters)
	}
	if n := keyCount(t, nodes, "jobs"); n != 5 {
		t.Errorf("the lock is on %d nodes", n)
	}

	_, err = b.TryAcquire(ctx, lease("jobs", "two"))
	if by := held(t, err); by.Owner != "one" || by.Label != "host-1:77" || by.Token != one.Token || by.TTL <= 5*time.Second {
		t.Errorf("refused: %+v", by)
	}
	_, err = b.TryAcquire(ctx, one)
	held(t, err) // no renewal

	one.TTL = 20 * time.Second
	must(t, b.Renew(ctx, one))
	one.Value = []byte("10.0.0.2:80")
	must(t, b.Proclaim(ctx, one))
	h, err = b.Inspect(ctx, "jobs")
	must(t, err)
	if h.TTL <= 15*time.Second || string(h.Value) != "10.0.0.2:80" || h.Label != "host-1:77" {
		t.Errorf("renewed and proclaimed: %+v", h)
	}

	wrong := one
	wrong.Token--
	for _, err := range []error{b.Renew(ctx, wrong), b.Release(ctx, wrong), b.Proclaim(ctx, wrong)} {
		gone(t, err)
	}
	must(t, b.Release(ctx, one))
	for _, err := range []error{b.Renew(ctx, one), b.Release(ctx, one), b.Proclaim(ctx, one)} {
		if by := gone(t, err); by.Held() {
			t.Errorf("refused: %+v", by)
		}
	}
	if h, err = b.Inspect(ctx, "jobs"); err != nil || h.Held() || h.Name != "" {
		t.Errorf("inspect a free lock: %+v, %v", h, err)
	}
	eventually(t, "the lock is on no node", func() bool { return keyCount(t, nodes, "jobs") == 0 })
}

func TestTTLBounds(t *testing.T) {
	_, b := cluster(t, driver.Config{"node_timeout": "50ms"})
	for ttl, want := range map[time.Duration]string{
		999 * time.Millisecond: "TTL 999ms is less than 20 times node_timeout 50ms",
		61 * time.Second:       "TTL 1m1s is more than max_ttl 1m0s",
	} {
		r := lease("a", "o")
		r.TTL = ttl
		_, err := b.TryAcquire(t.Context(), r)
		if !errors.Is(err, driver.ErrInvalid) || !contains(err, want) {
			t.Errorf("TTL %v: %v", ttl, err)
		}
		if err := b.Renew(t.Context(), r); !errors.Is(err, driver.ErrInvalid) || !contains(err, want) {
			t.Errorf("TTL %v: %v", ttl, err)
		}
	}
}

func TestTokensRise(t *testing.T) {
	_, b := cluster(t, nil)
	var last uint64
	for i := range 200 {
		r := acquire(t, b, lease("a", fmt.Sprint("o", i)))
		if r.Token <= last {
			t.Fatalf("token %d is not above %d", r.Token, last)
		}
		last = r.Token
		must(t, b.Release(t.Context(), r))
	}
}

// Two hosts guess tokens independently, and each other's guesses are wrong.
func TestTokensOfTwoHosts(t *testing.T) {
	nodes, b := cluster(t, nil)
	other := connect(t, config(nodes, nil))
	must(t, other.Check(t.Context()))
	b.learn(uint64(time.Now().Add(time.Hour).UnixMicro()))
	var last uint64
	for i := range 50 {
		for j, host := range []*Backend{b, other} {
			r := acquire(t, host, lease("a", fmt.Sprintf("o%d-%d", i, j)))
			if r.Token <= last {
				t.Fatalf("token %d of host %d is not above %d", r.Token, j, last)
			}
			last = r.Token
			must(t, host.Release(t.Context(), r))
		}
	}
}

func TestNoFencing(t *testing.T) {
	nodes, b := cluster(t, driver.Config{"fencing": "none"})
	ctx := t.Context()
	r := lease("a", "one")
	token, err := b.TryAcquire(ctx, r)
	if err != nil || token != 0 {
		t.Fatalf("token %d, %v", token, err)
	}
	_, err = b.TryAcquire(ctx, lease("a", "two"))
	if by := held(t, err); by.Owner != "one" {
		t.Errorf("held by %+v", by)
	}
	must(t, b.Renew(ctx, r))
	must(t, b.Release(ctx, r))
	eventually(t, "the lock is on no node", func() bool { return keyCount(t, nodes, "a") == 0 })
	if _, err := b.TryAcquire(ctx, r); !errors.Is(err, driver.ErrWithdrawn) {
		t.Errorf("acquire after the end: %v", err)
	}
}

func TestWithdraw(t *testing.T) {
	nodes, b := cluster(t, nil)
	ctx := t.Context()
	r := lease("a", "gone")
	must(t, b.Release(ctx, r)) // nothing there yet: the acquire may be on its way
	if _, err := b.TryAcquire(ctx, r); !errors.Is(err, driver.ErrWithdrawn) {
		t.Fatalf("acquire after the withdrawal: %v", err)
	}
	if n := keyCount(t, nodes, "a"); n != 0 {
		t.Fatalf("the refused lock is on %d nodes", n)
	}
	if err := b.Wait(ctx, r, time.Second); !errors.Is(err, driver.ErrWithdrawn) {
		t.Fatalf("wait after the withdrawal: %v", err)
	}
	other := acquire(t, b, lease("a", "other"))
	must(t, b.Release(ctx, r))
	must(t, b.Renew(ctx, other))
	got := acquire(t, b, lease("b", "late"))
	got.Token = 0
	must(t, b.Release(ctx, got))
	acquire(t, b, lease("b", "after"))
	must(t, b.Renew(ctx, other))
}

func TestKeep(t *testing.T) {
	_, b := cluster(t, nil)
	ctx := t.Context()
	r := acquire(t, b, lease("a", "o1"))
	r.Keep = 5 * time.Second
	must(t, b.Release(ctx, r))
	_, err := b.TryAcquire(ctx, lease("a", "o2"))
	if by := held(t, err); by.TTL > r.Keep || by.TTL < r.Keep/3 {
		t.Errorf("kept for %v, want %v", by.TTL, r.Keep)
	}
	r.Keep = time.Minute
	must(t, b.Release(ctx, r)) // never lengthens
	if h, err := b.Inspect(ctx, "a"); err != nil || h.TTL > 5*time.Second {
		t.Errorf("%+v, %v", h, err)
	}
	r.Keep = 0
	must(t, b.Release(ctx, r))
	acquire(t, b, lease("a", "o3"))
}

func TestBatch(t *testing.T) {
	_, b := cluster(t, nil)
	var ops []driver.Op
	for i := range 300 {
		ops = append(ops, driver.Op{Kind: driver.OpAcquire, Request: lease(fmt.Sprint("n", i), "o")})
	}
	short := lease("short", "o")
	short.TTL = time.Millisecond
	ops = append(ops, driver.Op{Kind: driver.OpAcquire, Request: short})
	results := b.Batch(t.Context(), ops)
	if err := results[300].Err; !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a bad operation of a batch: %v", err)
	}
	ops = ops[:300]
	for i, r := range results[:300] {
		if r.Err != nil || r.Token == 0 {
			t.Fatalf("operation %d: token %d, error %v", i, r.Token, r.Err)
		}
		ops[i].Kind, ops[i].Token = driver.OpRelease, r.Token
	}
	// In one call: a release, and an acquire of the same name after it.
	ops = append(ops, driver.Op{Kind: driver.OpAcquire, Request: lease("n0", "o2")})
	for i, r := range b.Batch(t.Context(), ops) {
		if r.Err != nil {
			t.Fatalf("operation %d: %v", i, r.Err)
		}
	}
}

func TestAdmin(t *testing.T) {
	_, b := cluster(t, nil)
	ctx := t.Context()
	r := acquire(t, b, lease("job/1", "o1"))
	acquire(t, b, lease("job/{2}", "o2"))
	acquire(t, b, lease("other", "o3"))
	found := map[string]uint64{}
	must(t, b.List(ctx, "job/", func(h driver.Holder) bool {
		found[h.Name] = h.Token
		return true
	}))
	if len(found) != 2 || found["job/1"] != r.Token || found["job/{2}"] == 0 {
		t.Errorf("list: %v", found)
	}
	if by := gone(t, b.Break(ctx, "job/1", r.Token+1)); by.Owner != "o1" {
		t.Errorf("break by another token: %+v", by)
	}
	must(t, b.Break(ctx, "job/1", r.Token))
	gone(t, b.Renew(ctx, r))
	if next := acquire(t, b, lease("job/1", "o4")); next.Token <= r.Token {
		t.Errorf("token %d after a break is not above %d", next.Token, r.Token)
	}
}

// A lock taken with SET NX on a majority by another client excludes us.
func TestForeignHolder(t *testing.T) {
	nodes, b := cluster(t, nil)
	ctx := t.Context()
	for _, s := range nodes[:3] {
		must(t, plain(t, s).SetNX(ctx, "a", "somebody", 20*time.Second).Err())
	}
	_, err := b.TryAcquire(ctx, lease("a", "o1"))
	if by := held(t, err); by.Owner != "somebody" || by.TTL <= 5*time.Second || by.TTL > 20*time.Second {
		t.Errorf("held by %+v", by)
	}
	if n := keyCount(t, nodes, "a"); n != 3 {
		t.Errorf("the refused lock is on %d nodes besides", n-3)
	}
	h, err := b.Inspect(ctx, "a")
	if err != nil || h.Owner != "somebody" || h.Token != 0 {
		t.Errorf("inspect: %+v, %v", h, err)
	}
}
