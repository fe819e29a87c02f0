package redlock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// While a lock is held, every node has it. No node has a lock that was released, or whose owner was
// withdrawn before its acquire.
func TestLockIsOnEveryNode(t *testing.T) {
	nodes, b := cluster(t, nil)
	r := acquire(t, b, lease("a", "one"))
	eventually(t, "the lock is on 5 nodes", func() bool { return keyCount(t, nodes, "a") == 5 })
	must(t, b.Release(t.Context(), r))
	eventually(t, "the lock is on no node", func() bool { return keyCount(t, nodes, "a") == 0 })
	gone := lease("a", "gone")
	must(t, b.Withdraw(t.Context(), gone.Name, gone.Owner)) // the acquire may be on its way
	if _, err := b.TryAcquire(t.Context(), gone); !errors.Is(err, driver.ErrWithdrawn) {
		t.Fatalf("acquire after the withdrawal: %v", err)
	}
	if n := keyCount(t, nodes, "a"); n != 0 {
		t.Fatalf("the refused lock is on %d nodes", n)
	}
}

func TestTTLBounds(t *testing.T) {
	_, b := cluster(t, driver.Config{"node_timeout": "1s"})
	for ttl, want := range map[time.Duration]string{
		19999 * time.Millisecond: "TTL 19.999s is less than 20 times node_timeout 1s",
		61 * time.Second:         "TTL 1m1s is more than max_ttl 1m0s",
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

// A HeldError has no published value, because a node replies only with the value's beginning.
func TestRefusalHasNoPartOfTheValue(t *testing.T) {
	_, b := cluster(t, nil)
	r := lease("a", "leader")
	r.Value = make([]byte, 2000)
	acquire(t, b, r)
	_, err := b.TryAcquire(t.Context(), lease("a", "other"))
	var held *driver.HeldError
	if !errors.As(err, &held) || held.Holder.Owner != "leader" || len(held.Holder.Value) > 0 {
		t.Errorf("%v, with a value of %d bytes", err, len(held.Holder.Value))
	}
}

// Tokens rise even if each host's guess is below the token that the other host got last.
func TestTokensOfTwoHosts(t *testing.T) {
	nodes, b := cluster(t, nil)
	other := connect(t, configOf(nodes, nil))
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

// A release with Keep must not free the lock early on any node, even if the host does not know
// whether the node granted the lock.
func TestKeptWhereUncertain(t *testing.T) {
	nodes, b := cluster(t, nil)
	r := acquire(t, b, lease("a", "o"))
	eventually(t, "the lock is on 5 nodes", func() bool { return keyCount(t, nodes, "a") == 5 })
	for _, n := range b.nodes {
		n.mu.Lock()
		n.uncertain.Put(r.Owner, struct{}{})
		n.mu.Unlock()
	}
	r.Keep = r.TTL / 2
	must(t, b.Release(t.Context(), r))
	_, err := b.Inspect(t.Context(), "a") // this request reaches every node after the release
	must(t, err)
	if n := keyCount(t, nodes, "a"); n != 5 {
		t.Errorf("the lock that is kept is on %d nodes", n)
	}
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
	// The batch has a release of "n0" and, at its end, an acquire of "n0".
	ops = append(ops, driver.Op{Kind: driver.OpAcquire, Request: lease("n0", "o2")})
	for i, r := range b.Batch(t.Context(), ops) {
		if r.Err != nil {
			t.Fatalf("operation %d: %v", i, r.Err)
		}
	}
}

// If another program has taken the lock with SET NX on a majority of nodes, an acquire is refused.
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
