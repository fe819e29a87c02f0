package redis

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

func TestLease(t *testing.T) {
	s := start(t, nil)
	b := connect(t, at(s))
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
		if by := notHeld(t, err); by.Owner != "one" {
			t.Errorf("refused: %+v", by)
		}
	}
	must(t, b.Release(ctx, one))
	for _, err := range []error{b.Renew(ctx, one), b.Release(ctx, one), b.Proclaim(ctx, one)} {
		if by := notHeld(t, err); by.Held() {
			t.Errorf("refused: %+v", by)
		}
	}
	if h, err = b.Inspect(ctx, "jobs"); err != nil || h.Held() || h.Name != "" {
		t.Errorf("inspect a free lock: %+v, %v", h, err)
	}
}

func TestTokensRise(t *testing.T) {
	s := start(t, nil)
	b := connect(t, at(s))
	var last uint64
	next := func(how string, r driver.Request) driver.Request {
		t.Helper()
		r = acquire(t, b, r)
		if r.Token <= last {
			t.Fatalf("token %d after %s is not above %d", r.Token, how, last)
		}
		last = r.Token
		return r
	}
	must(t, b.Release(t.Context(), next("the start", lease("a", "o1"))))
	must(t, b.Release(t.Context(), next("a release", lease("a", "o2"))))
	next("another", lease("a", "o3"))
	must(t, b.Release(t.Context(), next("another name", lease("b", "o4"))))
	must(t, plain(t, s).FlushAll(t.Context()).Err())
	next("FLUSHALL", lease("a", "o5"))
	must(t, s.Stop())
	must(t, s.Start(t.Context(), false))
	next("a restart without data", lease("a", "o6"))
}

// The counter rises by itself when the server's clock stands or jumps back.
func TestTokenAheadOfClock(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	const far = 1 << 52
	must(t, c.HSet(t.Context(), "~c:{}", "token", uint64(far)).Err())
	if r := acquire(t, b, lease("a", "o1")); r.Token != far+1 {
		t.Errorf("token %d, want %d", r.Token, far+1)
	}
	var ops []driver.Op
	for i := range 100 {
		ops = append(ops, driver.Op{Kind: driver.OpAcquire, Request: lease(fmt.Sprint("n", i), "o")})
	}
	for i, r := range b.Batch(t.Context(), ops) {
		if r.Err != nil || r.Token != uint64(far+2+i) {
			t.Fatalf("operation %d: token %d, error %v", i, r.Token, r.Err)
		}
	}
}

func TestWithdraw(t *testing.T) {
	s := start(t, nil)
	b := connect(t, at(s))
	ctx := t.Context()
	r := lease("a", "gone")
	must(t, b.Release(ctx, r)) // nothing there yet: the acquire may be on its way
	if _, err := b.TryAcquire(ctx, r); !errors.Is(err, driver.ErrWithdrawn) {
		t.Fatalf("acquire after the withdrawal: %v", err)
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
	s := start(t, nil)
	b := connect(t, at(s))
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

func TestBatchKeepsOrder(t *testing.T) {
	s := start(t, nil)
	b := connect(t, at(s))
	var ops []driver.Op
	for range 100 {
		ops = append(ops,
			driver.Op{Kind: driver.OpAcquire, Request: lease("same", "a")},
			driver.Op{Kind: driver.OpAcquire, Request: lease("same", "b")},
			driver.Op{Kind: driver.OpRelease, Request: lease("same", "c")})
	}
	results := b.Batch(t.Context(), ops)
	must(t, results[0].Err)
	for i, r := range results[1:] {
		if ops[i+1].Kind == driver.OpRelease {
			must(t, r.Err)
			continue
		}
		held(t, r.Err)
	}
}

func TestLabelAndValueKeepTheirBytes(t *testing.T) {
	s := start(t, nil)
	b := connect(t, at(s))
	for i, label := range []string{"", "0:", "a b c", "12:34", strings.Repeat("é", 128)} {
		r := lease(fmt.Sprint("n", i), "o")
		r.Label, r.Value = label, []byte("\x00 7 3:"+strings.Repeat("v", 64<<10-6))
		r = acquire(t, b, r)
		h, err := b.Inspect(t.Context(), r.Name)
		must(t, err)
		if h.Label != label || string(h.Value) != string(r.Value) || h.Owner != "o" {
			t.Errorf("label %q came back as %q, %d bytes of value", label, h.Label, len(h.Value))
		}
		r.Value = nil
		must(t, b.Proclaim(t.Context(), r))
		if h, err = b.Inspect(t.Context(), r.Name); err != nil || h.Label != label || h.Value != nil {
			t.Errorf("label %q after an empty proclaim: %+v, %v", label, h, err)
		}
	}
}
