package redis

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
)

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

// Tokens rise even when the server's clock stops or jumps back.
func TestTokenAheadOfClock(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	const far = 1 << 52
	must(t, c.SetRange(t.Context(), "~s:{}", 0, fmt.Sprintf("%016d", uint64(far))).Err())
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

func TestBatchKeepsOrder(t *testing.T) {
	s := start(t, nil)
	b := connect(t, at(s))
	var ops []driver.Op
	for range 100 {
		ops = append(ops,
			driver.Op{Kind: driver.OpAcquire, Request: lease("same", "a")},
			driver.Op{Kind: driver.OpAcquire, Request: lease("same", "b")},
			driver.Op{Kind: driver.OpWithdraw, Request: lease("same", "c")})
	}
	results := b.Batch(t.Context(), ops)
	must(t, results[0].Err)
	for i, r := range results[1:] {
		if ops[i+1].Kind == driver.OpWithdraw {
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
