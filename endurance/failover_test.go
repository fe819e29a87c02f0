package endurance_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/env"
)

// failoverGroup is a master with replicas that can be failed over.
type failoverGroup struct {
	cfg driver.Config
	// failOver begins a planned failover, calls begun, and returns when writes
	// may be served again.
	failOver func(t *testing.T, begun func())
	// ready returns when the next failover can begin.
	ready func(t *testing.T)
}

// A planned failover ends no candidate and no lease: one of the standbys leads
// soon after the store is back, when the leader ends meanwhile.
func TestPlannedFailover(t *testing.T) {
	binary := plugintest.Build(t, "../plugins/redis/lockplugin-redis")
	t.Run("fixed address", func(t *testing.T) { failOverAndOver(t, binary, fixedAddress(t)) })
	for wait := range 3 {
		t.Run(fmt.Sprint("Sentinel, wait_replicas=", wait), func(t *testing.T) {
			failOverAndOver(t, binary, sentinelGroup(t, wait))
		})
	}
}

func failOverAndOver(t *testing.T, binary string, g failoverGroup) {
	const leases, candidates = 100, 4
	late := 10 * time.Second // on a machine that does much else
	if count(0, 1) == 1 {
		late = time.Second
	}
	holder := failoverClient(t, binary, g.cfg, "holder")
	held := make([]*core.Lease, leases)
	for i := range held {
		l, err := holder.Lock(fmt.Sprint("held/", i), nil)
		if err == nil {
			held[i], err = l.Acquire(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	terms := make(chan int, 100)
	var work sync.WaitGroup
	defer work.Wait()
	stops := make([]context.CancelFunc, candidates)
	run := make([]func(), candidates)
	for i := range candidates {
		c := failoverClient(t, binary, g.cfg, fmt.Sprint("candidate-", i))
		e, err := c.Elector("leader", nil)
		if err != nil {
			t.Fatal(err)
		}
		run[i] = func() {
			ctx, stop := context.WithCancel(t.Context())
			stops[i] = stop
			work.Go(func() {
				err := e.Run(ctx, func(term *core.Term) {
					terms <- i
					<-term.Context().Done()
				})
				if ctx.Err() == nil {
					t.Errorf("candidate %d gave up: %v", i, err)
				}
			})
		}
		run[i]()
		defer func() { stops[i]() }()
	}
	leader := <-terms
	for round := range count(1, 20) {
		g.ready(t)
		old := leader
		ended := make(chan time.Time, 1)
		g.failOver(t, func() {
			time.AfterFunc(300*time.Millisecond, func() {
				stops[old]()
				ended <- time.Now()
			})
		})
		back := probe(t, holder)
		if end := <-ended; end.After(back) {
			back = end
		}
		for leader == old {
			select {
			case leader = <-terms:
			case <-time.After(30 * time.Second):
				t.Fatalf("round %d: nobody leads %v after the store was back", round, time.Since(back))
			}
		}
		if after := time.Since(back); after > late {
			t.Errorf("round %d: a standby leads %v after the store was back", round, after)
		} else {
			t.Logf("round %d: a standby leads %v after the store was back", round, max(0, after))
		}
		run[old]()
	}
	lost := 0
	for _, l := range held {
		if !l.Valid() {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d leases were lost, %v", lost, leases, held[0].Err())
	}
}

func failoverClient(t *testing.T, binary string, cfg driver.Config, label string) *core.Client {
	t.Helper()
	b, err := plugin.Open(t.Context(), "redis", optionsOf(binary, cfg))
	if err != nil {
		t.Fatal(err)
	}
	c := core.New(b, &core.Options{Label: label})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("close %s: %v", label, err)
		}
	})
	// Who was never served is refused at once.
	if err := c.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// probe returns when a lock can be had.
func probe(t *testing.T, c *core.Client) time.Time {
	t.Helper()
	l, err := c.Lock("probe", nil)
	if err != nil {
		t.Fatal(err)
	}
	for {
		lease, err := l.TryAcquire(t.Context())
		switch {
		case err == nil:
			back := time.Now()
			if err := lease.Release(t.Context()); err != nil {
				t.Logf("release of the probe: %v", err)
			}
			return back
		case t.Context().Err() != nil:
			t.Fatal(err)
		case !errors.Is(err, core.ErrUnavailable) && !errors.Is(err, core.ErrDenied) && !errors.Is(err, core.ErrHeld):
			t.Logf("probe: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func startMember(t *testing.T, lines ...string) (*env.Server, *goredis.Client) {
	t.Helper()
	s, err := env.StartRedis(t.Context(), &env.RedisOptions{Lines: append(lines, "repl-diskless-sync-delay 0")})
	keep(t, "redis", s, err)
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = c.Close() })
	return s, c
}

func hostPort(t *testing.T, s *env.Server) string {
	t.Helper()
	host, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return host + " " + port
}

// fixedAddress is a server that is demoted for 1.5 s, and its replica.
func fixedAddress(t *testing.T) failoverGroup {
	a, first := startMember(t)
	b, second := startMember(t, "replicaof "+hostPort(t, a))
	follow := func(c *goredis.Client, host, port string) {
		if err := c.ReplicaOf(t.Context(), host, port).Err(); err != nil {
			t.Error(err)
		}
	}
	ha, pa, _ := strings.Cut(hostPort(t, a), " ")
	hb, pb, _ := strings.Cut(hostPort(t, b), " ")
	return failoverGroup{
		cfg: driver.Config{"address": a.Addr()},
		failOver: func(t *testing.T, begun func()) {
			follow(second, "no", "one")
			follow(first, hb, pb)
			begun()
			time.Sleep(1500 * time.Millisecond)
			follow(first, "no", "one")
			follow(second, ha, pa)
		},
		ready: func(t *testing.T) {
			eventually(t, "the replica follows", func() bool {
				n, err := first.Do(t.Context(), "wait", 1, 500).Int()
				return err == nil && n >= 1
			})
		},
	}
}

// sentinelGroup is a master with one replica more than wait_replicas says.
func sentinelGroup(t *testing.T, wait int) failoverGroup {
	g, err := env.StartSentinel(t.Context(), wait+1)
	env.Keep(t, "redis", g, err)
	return failoverGroup{
		cfg: driver.Config{"address": g.Sentinel.Addr(), "sentinel_master": env.SentinelMaster, "wait_replicas": fmt.Sprint(wait)},
		failOver: func(t *testing.T, begun func()) {
			if err := g.FailOver(t.Context(), begun); err != nil {
				t.Fatal(err)
			}
		},
		ready: func(t *testing.T) {
			if err := g.AwaitReplicas(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	}
}
