package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
	etcdserver "github.com/lockbench/lockbench/internal/servers/etcd"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

// TestForgottenConnections simulates a firewall that drops all packets on existing connections, and
// passes new connections. No lease may be lost, so a new connection must be made long before grpc's
// pings find the loss.
func TestForgottenConnections(t *testing.T) {
	t.Parallel() // most of its time is waiting
	p := backendtest.NewProxy(t, start(t, nil).Addr())
	c := core.New(connect(t, Options{Address: []string{p.Addr()}}), &core.Options{Logger: slog.New(slog.DiscardHandler)})
	var held []*core.Lease
	for i := range 20 {
		l, err := c.Lock(fmt.Sprint("job ", i), &core.LockOptions{TTL: 12 * time.Second})
		must(t, err)
		lease, err := l.TryAcquire(t.Context())
		must(t, err)
		held = append(held, lease)
	}
	must(t, p.ForgetServer())
	over := time.Now().Add(12 * time.Second) // by then, a lease without a new renewal has expired
	for i, l := range held {
		eventually(t, "a renewal after that", func() bool {
			if err := l.Err(); err != nil {
				t.Fatalf("lease %d: %v", i, err)
			}
			return l.Deadline().After(over)
		})
	}
	must(t, c.Close(t.Context()))
}

// TestRevokedFromOutside lets an operator end held locks, by revoking the lease or deleting the
// key. The channel Done must close when the watch reports the loss, not at the next renewal.
func TestRevokedFromOutside(t *testing.T) {
	s := start(t, nil)
	c, operator := hosts(t, s, 1)[0], plain(t, s)
	l, err := c.Lock("jobs", &core.LockOptions{TTL: 30 * time.Second})
	must(t, err)
	key := newSpace(DefaultPrefix).free("jobs")
	last := uint64(0)
	for round := range 60 {
		lease, err := l.TryAcquire(t.Context())
		must(t, err)
		if lease.Token() <= last {
			t.Fatalf("token %d after %d", lease.Token(), last)
		}
		last = lease.Token()
		kvs, err := operator.Get(t.Context(), key)
		must(t, err)
		if len(kvs.Kvs) != 1 {
			t.Fatalf("keys: %v", kvs.Kvs)
		}
		<-time.After(time.Duration(round%4) * 15 * time.Millisecond) // the watch may not exist yet
		if round%2 == 0 {
			_, err = operator.Revoke(t.Context(), clientv3.LeaseID(kvs.Kvs[0].Lease))
		} else {
			_, err = operator.Delete(t.Context(), key)
		}
		must(t, err)
		select {
		case <-lease.Done():
		case <-time.After(5 * time.Second): // the next renewal is up to 10 s away
			t.Fatalf("round %d: not done 5 s after the delete", round)
		}
		if !errors.Is(lease.Err(), core.ErrRevoked) {
			t.Fatalf("round %d: cause %v", round, lease.Err())
		}
	}
}

// TestWithdrawalsInAnOutage checks that withdrawals that are given up do not pile up, and that a
// withdrawal whose ctx has already ended is not sent.
func TestWithdrawalsInAnOutage(t *testing.T) {
	s := start(t, nil)
	b := connect(t, Options{Address: []string{s.Addr()}, Connect: Connect{RequestTimeout: time.Second}})
	must(t, b.Check(t.Context()))
	must(t, s.Freeze())
	defer func() { must(t, s.Resume()) }()
	before, ctx := runtime.NumGoroutine(), t.Context()
	for range 6 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		var group sync.WaitGroup
		for i := range 100 {
			group.Go(func() { _ = b.Withdraw(ctx, fmt.Sprint("jobs-", i), "a") })
		}
		group.Wait()
		cancel()
	}
	if more := runtime.NumGoroutine() - before; more > 250 {
		t.Errorf("%d more goroutines", more)
	}
	if err := b.Withdraw(ctx, "jobs", "a"); !errors.Is(err, driver.ErrNotSent) {
		t.Errorf("given up before: %v", err)
	}
}

// TestMemberRestart stops each of three members once, including the leader, while one owner holds a
// lock and another waits for it. The lock must stay held, and the waiter must stay in the queue.
func TestMemberRestart(t *testing.T) {
	members, err := etcdserver.StartCluster(t.Context(), 3, nil)
	servers.Keep(t, "etcd", members, err)
	open := func() *core.Client {
		c := core.New(connect(t, Options{Address: members.Addrs(), Connect: Connect{RequestTimeout: time.Second}}), &core.Options{Logger: slog.New(slog.DiscardHandler)})
		t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
		return c
	}
	holder, waiter := open(), open()
	opts := &core.LockOptions{TTL: 10 * time.Second}
	l, err := holder.Lock("jobs", opts)
	must(t, err)
	lease, err := l.Acquire(t.Context())
	must(t, err)
	w, err := waiter.Lock("jobs", opts)
	must(t, err)
	got := make(chan *core.Lease, 1)
	go func() {
		next, err := w.Acquire(t.Context())
		if err != nil {
			t.Error(err)
		}
		got <- next
	}()
	for i, m := range members {
		must(t, m.Stop())
		other, err := holder.Lock(fmt.Sprintf("during-%d", i), opts)
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		extra, err := other.Acquire(ctx)
		cancel()
		if err != nil {
			t.Fatalf("with member %d down: %v", i, err)
		}
		must(t, extra.Release(t.Context()))
		must(t, m.Start(t.Context(), true))
	}
	if !lease.Valid() {
		t.Fatalf("the lock was lost: %v", lease.Err())
	}
	select {
	case next := <-got:
		t.Fatalf("granted twice: tokens %d and %d", lease.Token(), next.Token())
	default:
	}
	must(t, lease.Release(t.Context()))
	select {
	case next := <-got:
		if next.Token() <= lease.Token() {
			t.Errorf("token %d after %d", next.Token(), lease.Token())
		}
		must(t, next.Release(t.Context()))
	case <-time.After(testTimeout):
		t.Error("the waiter was not woken")
	}
}

// TestCompaction checks that compactions of all revisions harm neither a waiter nor an observer.
func TestCompaction(t *testing.T) {
	s := start(t, nil)
	b, other, operator := connect(t, on(s)), connect(t, on(s)), plain(t, s)
	first := acquire(t, other, lock("jobs", "first"))
	seen := make(chan driver.Holder, 16)
	go func() {
		_ = b.Observe(t.Context(), "jobs", func(h driver.Holder) { seen <- h })
	}()
	if h := <-seen; h.Token != first.Token {
		t.Fatalf("observed %+v", h)
	}
	woken := make(chan error, 1)
	go func() { woken <- backendtest.Err(b.Wait(t.Context(), lock("jobs", "next"), 10*time.Second)) }()
	eventually(t, "it waits", func() bool {
		h, err := other.Inspect(t.Context(), "jobs")
		return err == nil && h.Waiters == 1
	})
	for range 20 {
		resp, err := operator.Put(t.Context(), "noise", "x")
		must(t, err)
		_, err = operator.Compact(t.Context(), resp.Header.Revision)
		must(t, err)
	}
	released := time.Now()
	must(t, other.Release(t.Context(), first))
	must(t, <-woken)
	if took := time.Since(released); took > 5*time.Second {
		t.Errorf("woken after %v", took)
	}
	next := acquire(t, b, lock("jobs", "next"))
	eventually(t, "the new holder is observed", func() bool { return (<-seen).Token == next.Token })
}

// TestTokensOfTwoGenerations checks a process that goes on after its store has lost all data.
// It must not mistake an old lock for a new lock, although the first operations on the new
// server get the same revisions as on the old server.
func TestTokensOfTwoGenerations(t *testing.T) {
	s := start(t, nil)
	old := connect(t, on(s))
	must(t, old.Check(t.Context()))
	before := acquire(t, old, lock("jobs", "a"))
	must(t, s.Stop())
	must(t, s.Start(t.Context(), false))
	fresh := connect(t, on(s)) // begins the new generation before the old process has noticed the loss
	must(t, fresh.Check(t.Context()))
	r := acquire(t, fresh, lock("jobs", "b"))
	if r.Token <= before.Token {
		t.Errorf("token %d after %d", r.Token, before.Token)
	}
	must(t, fresh.Release(t.Context(), r))
	var token uint64
	eventually(t, "the old process goes on", func() (ok bool) {
		var err error
		token, err = old.TryAcquire(t.Context(), lock("jobs", "c"))
		return err == nil
	})
	if token <= r.Token {
		t.Errorf("token %d by the old process after %d", token, r.Token)
	}
}
