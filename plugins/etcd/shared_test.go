package etcd

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
	etcdserver "github.com/lockbench/lockbench/internal/servers/etcd"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

// expiryStep is the longest delay with which the server ends a lease. The server looks for expired
// leases twice a second, and needs a commit to end a lease.
const expiryStep = 1500 * time.Millisecond

func short(name, owner string) driver.Request {
	r := lock(name, owner)
	r.TTL = 3 * time.Second
	return r
}

func heldUntil(t *testing.T, b *Backend, name string) time.Time {
	t.Helper()
	var at time.Time
	eventually(t, name+" is free", func() bool {
		h, err := b.Inspect(t.Context(), name)
		must(t, err)
		at = time.Now()
		return !h.Held()
	})
	return at
}

// TestLateOnSharedLease checks that a key that is put late in its lease's life lives for the whole
// TTL. The process ends after the grant, so that only the lease keeps the key.
func TestLateOnSharedLease(t *testing.T) {
	versions(t, func(t *testing.T, binary string) {
		s := start(t, &etcdserver.Options{Binary: binary})
		b, other := connect(t, on(s)), connect(t, on(s))
		early := acquire(t, b, short("early", "a"))
		shared := b.table.find("early", "a", early.Token).lease
		<-time.After(1800 * time.Millisecond)
		sent := time.Now()
		late := acquire(t, b, short("late", "b"))
		if b.table.find("late", "b", late.Token).lease != shared {
			t.Fatal("the second lock is on another lease: the test shows nothing")
		}
		must(t, b.Close(t.Context()))
		lived := heldUntil(t, other, "late").Sub(sent)
		if lived < late.TTL || lived > late.TTL+expiryStep {
			t.Errorf("a lock acquired 1.8 s into the life of its lease lived %v, TTL %v", lived, late.TTL)
		}
	})
}

// keepRenewing renews the lock of the request r until the test ends or stop is called.
func keepRenewing(t *testing.T, b *Backend, r driver.Request) (stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		for {
			select {
			case <-ctx.Done():
				failed <- nil
				return
			case <-time.After(r.TTL / 6):
			}
			if err := b.Renew(ctx, r); err != nil && ctx.Err() == nil && !errors.Is(err, driver.ErrUnavailable) {
				failed <- err
				return
			}
		}
	}()
	return func() error { cancel(); return <-failed }
}

// TestUnrenewedEnds checks that a lock that is not renewed ends after its TTL
// although other locks on its lease live on.
func TestUnrenewedEnds(t *testing.T) {
	s := start(t, nil)
	b, other := connect(t, on(s)), connect(t, on(s))
	kept := acquire(t, b, short("kept", "a"))
	stop := keepRenewing(t, b, kept)
	sent := time.Now()
	left := acquire(t, b, short("left", "b"))
	if b.table.find("left", "b", left.Token).lease != b.table.find("kept", "a", kept.Token).lease {
		t.Fatal("they are on different leases: the test shows nothing")
	}
	lived := heldUntil(t, other, "left").Sub(sent)
	if lived < left.TTL || lived > left.TTL+expiryStep {
		t.Errorf("it lived %v, TTL %v", lived, left.TTL)
	}
	must(t, stop())
	isNotHeld(t, b.Renew(t.Context(), left))
	must(t, b.Renew(t.Context(), kept))
}

// TestUnconfirmedDies drops the reply to a granted acquire and, for a while, the replies to all
// later requests for that lock. The key must be deleted although another lock on its lease is
// renewed all the time.
func TestUnconfirmedDies(t *testing.T) {
	versions(t, func(t *testing.T, binary string) {
		s := start(t, &etcdserver.Options{Binary: binary})
		var lose atomic.Bool
		relay := relayTo(t, s.Addr(), func(method string, request []byte) error {
			if lose.Load() && method == pb.KV_Txn_FullMethodName && strings.Contains(string(request), "ghost") {
				return status.Error(codes.Unavailable, "the answer is lost")
			}
			return nil
		})
		b, other := connect(t, Options{Address: []string{relay}}), connect(t, on(s))
		kept := acquire(t, b, short("kept", "a"))
		shared := b.table.find("kept", "a", kept.Token).lease
		lose.Store(true)
		if _, err := b.TryAcquire(t.Context(), short("ghost", "b")); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrNotSent) {
			t.Errorf("its outcome is known: %v", err)
		}
		sent := time.Now()
		if h, err := other.Inspect(t.Context(), "ghost"); err != nil || !h.Held() {
			t.Fatalf("there is no ghost: %+v, %v", h, err)
		}
		stop := keepRenewing(t, b, kept)
		<-time.After(time.Second)
		lose.Store(false)
		if lived := heldUntil(t, other, "ghost").Sub(sent); lived > 3*time.Second+expiryStep {
			t.Errorf("the ghost lived %v, TTL 3s", lived)
		}
		must(t, stop())
		must(t, b.Renew(t.Context(), kept))
		if now := b.table.find("kept", "a", kept.Token); now == nil || now.lease != shared {
			t.Error("the live lock is on another lease")
		}
		if h, err := other.Inspect(t.Context(), "kept"); err != nil || h.Token != kept.Token {
			t.Errorf("the live lock: %+v, %v; want token %d", h, err, kept.Token)
		}
		if _, err := b.TryAcquire(t.Context(), short("ghost", "b")); !errors.Is(err, driver.ErrWithdrawn) {
			t.Errorf("the ghost may come again: %v", err)
		}
	})
}

// TestRestartOfProcess checks that a new process renews the locks that it is asked to renew,
// with the same tokens. It must not renew other keys that the earlier process has left.
func TestRestartOfProcess(t *testing.T) {
	s := start(t, nil)
	before, other := connect(t, on(s)), connect(t, on(s))
	kept := acquire(t, before, short("kept", "a"))
	sent := time.Now()
	acquire(t, before, short("left", "b"))
	must(t, before.Close(t.Context()))
	after := connect(t, on(s))
	stop := keepRenewing(t, after, kept)
	if lived := heldUntil(t, other, "left").Sub(sent); lived > 3*time.Second+expiryStep {
		t.Errorf("what the new process does not know lived %v, TTL 3s", lived)
	}
	must(t, stop())
	must(t, after.Renew(t.Context(), kept))
	if h, err := other.Inspect(t.Context(), "kept"); err != nil || h.Token != kept.Token {
		t.Errorf("after the restart: %+v, %v; want token %d", h, err, kept.Token)
	}
	must(t, after.Release(t.Context(), kept))
	isNotHeld(t, after.Release(t.Context(), kept))
}

// TestEntryGivenUpAtTheEnd checks that the delete of an entry does not hang after Close.
func TestEntryGivenUpAtTheEnd(t *testing.T) {
	b := connect(t, on(start(t, nil)))
	must(t, b.Check(t.Context()))
	l, err := b.leases.get(t.Context(), b.leases.forWaiting())
	must(t, err)
	e := b.table.newWaiting(lock("jobs", "a"), l, 0, time.Now())
	b.table.unpin(e)
	must(t, b.Close(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.table.known(e, b.txns.Known(), 2)
		b.table.erase(e)
	}()
	select {
	case <-done:
	case <-time.After(testTimeout):
		t.Fatal("it hangs")
	}
}

// TestEntryEndsWithLock checks that the queue entry that became a lock is gone once the lock has
// ended, however it ended. Otherwise the queue would stall behind the entry.
func TestEntryEndsWithLock(t *testing.T) {
	ends := map[string]func(t *testing.T, b *Backend, s *servers.Server, r driver.Request){
		"release": func(t *testing.T, b *Backend, _ *servers.Server, r driver.Request) {
			must(t, b.Release(t.Context(), r))
		},
		"withdraw": func(t *testing.T, b *Backend, _ *servers.Server, r driver.Request) {
			must(t, b.Withdraw(t.Context(), r.Name, r.Owner))
		},
		"break": func(t *testing.T, b *Backend, _ *servers.Server, r driver.Request) {
			must(t, b.Break(t.Context(), r.Name, r.Token))
		},
		"restart": func(t *testing.T, b *Backend, s *servers.Server, r driver.Request) {
			must(t, b.Close(t.Context()))
			must(t, connect(t, on(s)).Release(t.Context(), r))
		},
	}
	s := start(t, nil)
	for how, end := range ends {
		t.Run(how, func(t *testing.T) {
			b, other := connect(t, on(s)), connect(t, on(s))
			first := acquire(t, other, lock(how, "first"))
			waiter := lock(how, "waiter")
			woken := make(chan error, 1)
			go func() { woken <- backendtest.Err(b.Wait(t.Context(), waiter, 10*time.Second)) }()
			eventually(t, "it waits", func() bool {
				h, err := other.Inspect(t.Context(), how)
				return err == nil && h.Waiters == 1
			})
			must(t, other.Release(t.Context(), first))
			must(t, <-woken)
			end(t, b, s, acquire(t, b, waiter))
			acquire(t, other, lock(how, "last"))
			eventually(t, "no key is in use", func() bool {
				b.table.mu.Lock()
				defer b.table.mu.Unlock()
				return len(b.table.keys) == 0 || how == "restart"
			})
		})
	}
}
