package redlock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

func hosts(t *testing.T, count int, cfg driver.Config) []*core.Client {
	t.Helper()
	var cs []*core.Client
	for i := range count {
		c := core.New(connect(t, cfg), &core.Options{Label: fmt.Sprint("host-", i)})
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			if err := c.Close(ctx); err != nil && !errors.Is(err, core.ErrClosed) {
				t.Errorf("close: %v", err)
			}
		})
		must(t, c.Check(t.Context()))
		cs = append(cs, c)
	}
	return cs
}

// Hosts that compete for one lock get it about equally often, with at least two grants a second. An
// unfair run is repeated if a thread of the test or of a node waited long for a processor, because
// a refused owner waits for the slowest node.
func TestTurns(t *testing.T) {
	nodes, b := cluster(t, nil)
	cs := hosts(t, 6, configOf(nodes, nil))
	waits, stop := proc.WatchFamily()
	defer stop()
	for end := time.Now().Add(timeout); ; {
		began := time.Now()
		counts, fairness := turns(t, cs)
		if t.Failed() || fairness >= 0.7 {
			break
		}
		waits.Look(proc.Family(os.Getpid())...)
		waited := waits.Longest(began)
		if waited < 20*time.Millisecond || time.Now().After(end) {
			t.Fatalf("grants by host: %v, fairness %.3f; a thread waited for a processor for %v at most", counts, fairness, waited)
		}
		t.Logf("again, a thread waited for a processor for %v: grants by host: %v, fairness %.3f", waited, counts, fairness)
	}
	eventually(t, "nobody holds it", func() bool {
		h, err := b.Inspect(t.Context(), "turns")
		return err == nil && !h.Held()
	})
}

// turns lets hosts compete for one lock until it was granted 120 times. It returns the number of
// grants to each host, and the fairness of these counts by Jain's index.
func turns(t *testing.T, cs []*core.Client) (counts []int, fairness float64) {
	counts = make([]int, len(cs))
	const enough = 120
	ctx, cancel := context.WithTimeout(t.Context(), enough*time.Second/2)
	defer cancel()
	total := 0
	var holding sync.Mutex
	var last uint64
	begun := map[int]bool{} // grants count only after every host has had one
	var work sync.WaitGroup
	for i, c := range cs {
		work.Go(func() {
			l, err := c.Lock("turns", &core.LockOptions{TTL: 10 * time.Second})
			if err != nil {
				t.Error(err)
				return
			}
			for ctx.Err() == nil {
				lease, err := l.Acquire(ctx)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				if !holding.TryLock() {
					t.Error("two hold it")
					return
				}
				if lease.Token() <= last {
					t.Errorf("token %d is not above %d", lease.Token(), last)
				}
				last = lease.Token()
				if begun[i] = true; len(begun) == len(cs) {
					counts[i]++
					if total++; total == enough {
						cancel()
					}
				}
				holding.Unlock()
				if err := lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	sum, squares := 0.0, 0.0
	for _, n := range counts {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if sum < enough {
		t.Errorf("%.0f grants, want %d", sum, enough)
	}
	return counts, sum * sum / squares / float64(len(counts))
}

// Hosts use the same node's queue for a lock, even if they list the nodes in different orders or by
// different addresses. If hosts used different queues, nodes would keep the lock for different
// waiters, and no owner would get a majority. The queues of many locks are spread over all nodes.
func TestHostsMeetAtOneQueue(t *testing.T) {
	nodes, b := cluster(t, nil)
	var addrs []string
	for i, s := range nodes {
		addr := s.Addr()
		if i%2 == 0 {
			addr = strings.Replace(addr, "127.0.0.1", "localhost", 1)
		}
		addrs = append(addrs, addr)
	}
	slices.Reverse(addrs)
	other := connect(t, configOf(nodes, driver.Config{"address": strings.Join(addrs, ",")}))
	must(t, other.Check(t.Context()))
	run := func(b *Backend, name string) string {
		n := b.nodes[b.queueOf(name, "")]
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.server.RunID
	}
	eventually(t, "every node votes", func() bool {
		return !slices.ContainsFunc(slices.Concat(b.nodes, other.nodes), func(n *node) bool { return !n.votes() })
	})
	names := map[string]int{}
	for i := range 1000 {
		name := fmt.Sprint(i)
		if run(b, name) != run(other, name) {
			t.Fatalf("%q: the hosts queue at different nodes", name)
		}
		names[run(b, name)]++
	}
	for run, count := range names {
		if count < 100 || len(names) != len(nodes) {
			t.Errorf("%d nodes are queues, %s of %d of 1000 names", len(names), run, count)
		}
	}
}

// If the node with the queue dies, its waiters must enter the queue of one other node.
func TestQueueMoves(t *testing.T) {
	nodes, b := cluster(t, nil)
	r := acquire(t, b, lease("a", "holder"))
	queue := b.nodes[b.queueOf("a", "")]
	cs := hosts(t, 2, configOf(nodes, nil))
	var work sync.WaitGroup
	granted := make(chan uint64, len(cs))
	for _, c := range cs {
		work.Go(func() {
			l, err := c.Lock("a", &core.LockOptions{TTL: 10 * time.Second})
			if err != nil {
				t.Error(err)
				return
			}
			lease, err := l.Acquire(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			granted <- lease.Token()
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	waiters := func(want int) func() bool {
		return func() bool {
			h, err := b.Inspect(t.Context(), "a")
			return err == nil && h.Waiters == want
		}
	}
	eventually(t, "two wait", waiters(2))
	for _, s := range nodes {
		if s.Addr() == queue.addr {
			must(t, s.Stop())
		}
	}
	eventually(t, "two wait at the next node", waiters(2))
	began := time.Now()
	must(t, b.Release(t.Context(), r))
	first, second := <-granted, <-granted
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("two grants took %v, and the TTL is 10s", took)
	}
	if first <= r.Token || second <= first {
		t.Errorf("tokens %d, %d, %d do not rise", r.Token, first, second)
	}
	work.Wait()
}

// The node with the queue lacks the holder's lease, because another program had the lock there. A
// waiter must use another node's queue, where the end of the lease wakes it. The node with the
// queue soon gets a copy of the lease, even without a renewal. It gets no copy of a released lease.
func TestQueueLacksTheLease(t *testing.T) {
	nodes, b := cluster(t, nil)
	queue := plain(t, nodes[b.queueOf("a", "holder")])
	must(t, queue.MSet(t.Context(), "a", "of somebody else", "b", "of somebody else").Err())
	r := acquire(t, b, lease("a", "holder"))
	must(t, b.Release(t.Context(), acquire(t, b, lease("b", "brief"))))
	must(t, queue.Del(t.Context(), "a", "b").Err())

	other, waiter := connect(t, configOf(nodes, nil)), lease("a", "waiter")
	must(t, other.Check(t.Context()))
	_, err := other.TryAcquire(t.Context(), waiter)
	held(t, err)
	began, most := time.Now(), 300*time.Millisecond
	must(t, backendtest.Err(other.Wait(t.Context(), waiter, most)))
	if took := time.Since(began); took < most {
		t.Errorf("a wait of %v for a held lock ended after %v", most, took)
	}
	eventually(t, "the lease is on all nodes", func() bool { return keyCount(t, nodes, "a") == len(nodes) })
	if n := keyCount(t, nodes, "b"); n != 0 {
		t.Errorf("a lease that was released is on %d nodes", n)
	}
	woken := make(chan error, 1)
	go func() { woken <- backendtest.Err(other.Wait(t.Context(), waiter, time.Minute)) }()
	must(t, b.Release(t.Context(), r))
	must(t, <-woken)
	if acquire(t, other, waiter); time.Since(began) > timeout {
		t.Errorf("woken after %v", time.Since(began))
	}
}

func TestWatch(t *testing.T) {
	nodes, b := cluster(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	notices := make(chan driver.Notice, 10)
	var work sync.WaitGroup
	work.Go(func() {
		if err := b.Watch(ctx, func(n driver.Notice) { notices <- n }); !errors.Is(err, context.Canceled) {
			t.Errorf("watch ended: %v", err)
		}
	})
	for _, s := range nodes[:3] {
		must(t, s.Freeze())
	}
	if n := <-notices; n.Kind != driver.NoticeDown || n.Err == nil {
		t.Errorf("notice %+v", n)
	}
	for _, s := range nodes[:3] {
		must(t, s.Resume())
	}
	if n := <-notices; n.Kind != driver.NoticeUp {
		t.Errorf("notice %+v", n)
	}
	cancel()
	work.Wait()
}
