package redlock

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// New nodes vote after max_ttl even if every host runs for a shorter time, because each node
// records when its quarantine began.
func TestQuarantineEndsForShortLives(t *testing.T) {
	nodes := start(t, 3, nil)
	cfg := configOf(nodes, driver.Config{"max_ttl": "3s", "node_timeout": "100ms"})
	began := time.Now()
	granted := func() (ok bool) {
		cfg, err := Spec.CheckConfig(cfg)
		must(t, err)
		b, err := open(optionsOf(cfg, slog.New(slog.DiscardHandler)))
		must(t, err)
		defer func() { must(t, b.Close(context.WithoutCancel(t.Context()))) }()
		for end := time.Now().Add(time.Second); time.Now().Before(end); pause(t.Context(), 20*time.Millisecond) {
			r := lease("a", "o")
			r.TTL = 2 * time.Second
			if r.Token, err = b.TryAcquire(t.Context(), r); err == nil {
				must(t, b.Release(t.Context(), r))
				return true
			}
		}
		return false
	}
	eventually(t, "a process that lives for a second has the lock", granted)
	if took := time.Since(began); took < 3*time.Second {
		t.Errorf("the nodes vote after %v", took)
	}
}

// A node's quarantine does not get longer if connections to the node break.
func TestBrokenConnectionsDoNotProlongQuarantine(t *testing.T) {
	nodes, b := cluster(t, driver.Config{"max_ttl": "3s", "node_timeout": "100ms"})
	c := plain(t, nodes[0])
	must(t, c.FlushAll(t.Context()).Err())
	eventually(t, "the node is in quarantine", func() bool { return !nodeAt(b, nodes[0]).votes() })
	began, broken := time.Now(), 0
	eventually(t, "it votes", func() bool {
		if int(time.Since(began).Seconds()) > broken {
			must(t, c.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
			broken++
		}
		return nodeAt(b, nodes[0]).votes()
	})
	if took := time.Since(began); broken == 0 || took < 2*time.Second {
		t.Errorf("it votes after %v and %d broken connections", took, broken)
	}
}

// If the clock of a node in quarantine jumps ahead, the quarantine does not end, because the clocks
// of the other nodes show that too little time has passed. A backend that is opened after the jump
// must not end the quarantine either.
func TestClockJumpEndsNoQuarantine(t *testing.T) {
	nodes, b := cluster(t, nil)
	c := plain(t, nodes[0])
	must(t, c.FlushAll(t.Context()).Err())
	eventually(t, "the node is in quarantine, and knows the others' clocks", func() bool {
		return c.HExists(t.Context(), markerKey, "others").Val()
	})
	since, err := c.HGet(t.Context(), markerKey, "since").Int64()
	must(t, err)
	// Setting the start back by an hour is like moving the node's clock ahead by an hour.
	must(t, c.HSet(t.Context(), markerKey, "since", since-time.Hour.Microseconds()).Err())
	late := connect(t, configOf(nodes, nil))
	must(t, late.Check(t.Context()))
	pause(t.Context(), time.Second)
	if nodeAt(b, nodes[0]).votes() || nodeAt(late, nodes[0]).votes() {
		t.Error("the node votes")
	}
	others, err := c.HGet(t.Context(), markerKey, "others").Int64()
	must(t, err)
	must(t, c.HSet(t.Context(), markerKey, "others", others-time.Hour.Microseconds()).Err())
	voting(t, connect(t, configOf(nodes, nil)), nodes[0])
}

// Nodes that begin to evict keys grant no more locks, but renew held leases.
func TestPolicyChangedOnNodes(t *testing.T) {
	nodes, b := cluster(t, nil)
	ctx := t.Context()
	r := acquire(t, b, lease("held", "o1"))
	for _, s := range nodes[:3] {
		must(t, plain(t, s).ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err())
	}
	eventually(t, "acquires are refused", func() bool {
		next := lease("next", "o2")
		token, err := b.TryAcquire(ctx, next)
		if next.Token = token; err == nil {
			must(t, b.Release(ctx, next))
			return false
		}
		if !errors.Is(err, driver.ErrDenied) || !contains(err, "allkeys-lru") {
			t.Fatalf("acquire: %v", err)
		}
		return true
	})
	if err := b.Check(ctx); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("check: %v", err)
	}
	must(t, b.Renew(ctx, r))
	for _, s := range nodes[:3] {
		must(t, plain(t, s).ConfigSet(ctx, "maxmemory-policy", "noeviction").Err())
	}
	voting(t, b, nodes...)
	acquire(t, b, lease("next", "o3"))
}
