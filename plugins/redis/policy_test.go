package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

// When a host notices that the server's maxmemory-policy now evicts keys, it refuses acquires but
// still renews leases.
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

// In a Cluster with a dead master, the policies of the other masters are still read. Acquires are
// refused only while one of the living masters may evict keys.
func TestPolicyWithAMasterDown(t *testing.T) {
	servers, opts := startCluster(t, 3, "cluster-require-full-coverage no")
	ctx := t.Context()
	b := connect(t, opts)
	evicting := plain(t, servers[2])
	must(t, b.Release(ctx, acquire(t, b, lease("b", "before")))) // slot 3300, on the first master
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

// A master that evicts keys and then freezes still counts as evicting, because it executes the
// received requests when it resumes.
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

func startReplica(t *testing.T, master *servers.Server, lines ...string) *servers.Server {
	t.Helper()
	bus := fmt.Sprint(freePort(t))
	s := start(t, &redisserver.Options{Lines: append([]string{
		"cluster-enabled yes", "cluster-port " + bus, "cluster-node-timeout 2000", "repl-diskless-sync-delay 0"}, lines...)})
	host, port, err := net.SplitHostPort(s.Addr())
	must(t, err)
	m, c := plain(t, master), plain(t, s)
	must(t, m.Do(t.Context(), "CLUSTER", "MEET", host, port, bus).Err())
	id := m.Do(t.Context(), "CLUSTER", "MYID").Val()
	eventually(t, "a replica", func() bool { return c.Do(t.Context(), "CLUSTER", "REPLICATE", id).Err() == nil })
	eventually(t, "replicated", func() bool {
		return strings.Contains(c.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	return s
}

// Replicas that evict keys do not matter until they become masters.
func TestPolicyOfReplicas(t *testing.T) {
	ctx := t.Context()
	all, opts := startCluster(t, 3, "repl-diskless-sync-delay 0")
	opts.Address = nil
	for _, master := range all[:3] {
		s := startReplica(t, master, "maxmemory 100mb", "maxmemory-policy allkeys-lru")
		all, opts.Address = append(all, s), append(opts.Address, s.Addr())
	}
	for _, s := range all {
		c := plain(t, s)
		eventually(t, "each node knows all", func() bool {
			nodes, info := c.ClusterNodes(ctx).Val(), c.ClusterInfo(ctx).Val()
			return strings.Count(nodes, "slave ") == 3 && strings.Contains(info, "cluster_slots_ok:16384") && strings.Contains(info, "cluster_state:ok")
		})
	}
	for round := range 10 {
		b := connect(t, opts)
		for i := range 60 {
			if i == 30 {
				for _, s := range all {
					must(t, plain(t, s).ClientKillByFilter(ctx, "TYPE", "normal", "SKIPME", "yes").Err())
				}
			}
			_, err := b.TryAcquire(ctx, lease(fmt.Sprint(round, i), "o"))
			if err != nil && (i < 30 || errors.Is(err, driver.ErrDenied)) {
				t.Fatalf("round %d, acquire %d: %v", round, i, err)
			}
		}
		eventually(t, "the check holds", func() bool {
			err := b.Check(ctx)
			if errors.Is(err, driver.ErrDenied) {
				t.Fatalf("round %d: %v", round, err)
			}
			return err == nil
		})
	}
}
