package etcd

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/watch"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

// TestKeysAreUsedAgain checks that a lock always uses the same key, for every owner. A new key for
// each owner would stay in the server's index until compaction, and slow every acquire.
func TestKeysAreUsedAgain(t *testing.T) {
	s := start(t, nil)
	b := connect(t, on(s))
	c := plain(t, s)
	seen := map[string]bool{}
	look := func() {
		t.Helper()
		resp, err := c.Get(t.Context(), b.space.entries("jobs"), clientv3.WithPrefix(), clientv3.WithKeysOnly())
		must(t, err)
		if len(resp.Kvs) != 1 {
			t.Fatalf("%d keys of one lease", len(resp.Kvs))
		}
		seen[string(resp.Kvs[0].Key)] = true
	}
	var tokens []uint64
	for i := range 5 {
		r := acquire(t, b, lock("jobs", fmt.Sprint("o-", i)))
		look()
		tokens = append(tokens, r.Token)
		must(t, b.Release(t.Context(), r))
	}
	if len(seen) != 1 || !slices.IsSorted(tokens) {
		t.Errorf("keys %v, tokens %d", seen, tokens)
	}
}

// TestEntryOfALateProcess checks a waiter whose process was paused past the deadline of its queue
// entry. The waiter must keep that one entry, and its withdrawal must delete the entry. If the
// waiter got a second entry, the first would stay in the queue while other waiters renew its lease.
func TestEntryOfALateProcess(t *testing.T) {
	s := start(t, nil)
	b := connect(t, on(s))
	acquire(t, b, lock("jobs", "holder"))
	r := lock("jobs", "late")
	must(t, backendtest.Err(b.Wait(t.Context(), r, time.Millisecond)))
	for range 3 {
		b.table.mu.Lock()
		b.table.entries[entryKey{r.Name, r.Owner}].deadline = time.Now().Add(-time.Millisecond)
		b.table.mu.Unlock()
		must(t, backendtest.Err(b.Wait(t.Context(), r, time.Millisecond)))
		if _, err := b.TryAcquire(t.Context(), r); !errors.Is(err, driver.ErrHeld) {
			t.Fatal(err)
		}
	}
	left := func() int64 {
		t.Helper()
		resp, err := plain(t, s).Get(t.Context(), b.space.entries("jobs"), clientv3.WithPrefix(), clientv3.WithCountOnly())
		must(t, err)
		return resp.Count
	}
	if n := left(); n != 2 {
		t.Errorf("%d entries of a holder and a waiter", n)
	}
	must(t, b.Withdraw(t.Context(), r.Name, r.Owner)) // the owner gives up
	if n := left(); n != 1 {
		t.Errorf("%d entries of a holder are left", n)
	}
}

// Hosts that compete for a lock must reuse a few keys, and must not put a new key for each grant.
func TestEntriesAreUsedAgain(t *testing.T) {
	const hosting, rounds = 3, 20
	s := start(t, nil)
	c := plain(t, s)
	names := newSpace(DefaultPrefix).entries("jobs")
	watch := c.Watch(t.Context(), names, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-watch
	var group sync.WaitGroup
	for _, h := range hosts(t, s, hosting) {
		l, err := h.Lock("jobs", nil)
		must(t, err)
		group.Go(func() {
			for range rounds {
				lease, err := l.Acquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				<-time.After(time.Millisecond) // meanwhile others enter the queue
				if err := lease.Release(t.Context()); err != nil && !errors.Is(err, core.ErrIndeterminate) {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	_, err := c.Put(t.Context(), names+"end", "")
	must(t, err)
	keys := map[string]int{}
	for keys[names+"end"] == 0 {
		for _, e := range (<-watch).Events {
			keys[string(e.Kv.Key)]++
		}
	}
	delete(keys, names+"end")
	held := 0
	for k := range keys {
		if k == newSpace(DefaultPrefix).free("jobs") {
			held++
		}
	}
	if waited := len(keys) - held; held > 1 || waited == 0 || waited > 2*hosting {
		t.Errorf("%d keys of leases, %d of queue entries in %d grants to %d hosts", held, waited, hosting*rounds, hosting)
	}
}

// TestEntryOfAnEarlierProcess checks a waiter whose process was replaced. No process renews the
// waiter's old entry. When that entry has ended, the new process must get the lock for the waiter.
func TestEntryOfAnEarlierProcess(t *testing.T) {
	s := start(t, nil)
	other, before := connect(t, on(s)), connect(t, on(s))
	first := acquire(t, other, lock("jobs", "first"))
	waiter := lock("jobs", "waiter")
	must(t, backendtest.Err(before.Wait(t.Context(), waiter, 10*time.Millisecond)))
	must(t, before.Close(t.Context()))
	after := connect(t, on(s))
	must(t, other.Release(t.Context(), first))
	eventually(t, "it is granted", func() bool {
		g, err := after.Wait(t.Context(), waiter, time.Second)
		must(t, err)
		if waiter.Token = g.Token; g.Token == 0 {
			waiter.Token, err = after.TryAcquire(t.Context(), waiter)
		}
		return err == nil
	})
	must(t, after.Renew(t.Context(), waiter))
	if h, err := other.Inspect(t.Context(), "jobs"); err != nil || h.Owner != "waiter" || h.Token != waiter.Token || h.Waiters != 0 {
		t.Errorf("after the grant of %d: %+v, %v", waiter.Token, h, err)
	}
}

// TestWithdrawOfOneOnly checks that a withdrawal, by any process, ends only the named owner's lock.
func TestWithdrawOfOneOnly(t *testing.T) {
	s := start(t, nil)
	b, stranger := connect(t, on(s)), connect(t, on(s))
	must(t, b.Release(t.Context(), acquire(t, b, lock("jobs", "a"))))
	second := acquire(t, b, lock("jobs", "b"))
	for _, owner := range []string{"a", "c"} {
		must(t, stranger.Withdraw(t.Context(), "jobs", owner))
		must(t, b.Withdraw(t.Context(), "jobs", owner))
	}
	must(t, b.Renew(t.Context(), second))
	wrong := second
	wrong.Owner = "a"
	for _, p := range []*Backend{b, stranger} {
		if h := isNotHeld(t, p.Release(t.Context(), wrong)); h.Owner != "b" || h.Token != second.Token {
			t.Errorf("the release of another owner's token names %+v", h)
		}
	}
	must(t, stranger.Withdraw(t.Context(), "jobs", "b"))
	if h, err := b.Inspect(t.Context(), "jobs"); err != nil || h.Held() {
		t.Errorf("after the withdrawal: %+v, %v", h, err)
	}
	third := acquire(t, b, lock("jobs", "d"))
	must(t, stranger.Release(t.Context(), third)) // a read of the lock, then the release
}

// TestWithdrawOfAnUnknownPut withdraws an owner whose put has no answer yet, after the key went to
// another owner, as it does when the put fails. The withdrawal must not delete that owner's entry.
func TestWithdrawOfAnUnknownPut(t *testing.T) {
	s := start(t, nil)
	b := connect(t, on(s))
	l, err := b.leases.get(t.Context(), b.leases.forWaiting())
	must(t, err)
	first := b.table.newWaiting(lock("jobs", "first"), l, 0, time.Now())
	b.table.mu.Lock()
	delete(b.table.keys, first.key)
	b.table.mu.Unlock()
	must(t, backendtest.Err(b.Wait(t.Context(), lock("jobs", "next"), time.Millisecond)))
	must(t, b.Withdraw(t.Context(), "jobs", "first"))
	if h, err := b.Inspect(t.Context(), "jobs"); err != nil || h.Owner != "next" {
		t.Errorf("held by %q, %v", h.Owner, err)
	}
}

// A withdrawal must delete an entry behind many others, even if the entry's put got no answer.
func TestWithdrawBehindMany(t *testing.T) {
	s := start(t, nil)
	b, operator := connect(t, on(s)), plain(t, s)
	must(t, b.Check(t.Context()))
	for i := range maxFound + 1 {
		_, err := operator.Put(t.Context(), b.space.waiting("jobs", fmt.Sprint("other-", i)), "")
		must(t, err)
	}
	l, err := b.leases.get(t.Context(), b.leases.forWaiting())
	must(t, err)
	e := b.table.newWaiting(lock("jobs", "a"), l, 0, time.Now())
	_, err = operator.Put(t.Context(), e.key, string(e.value))
	must(t, err)
	must(t, b.Withdraw(t.Context(), "jobs", "a"))
	if kvs, err := operator.Get(t.Context(), e.key); err != nil || kvs.Count != 0 {
		t.Errorf("%v, %v", kvs, err)
	}
}

// TestOldDeleteIsNoLoss checks that a delete of an earlier entry with the same key does not count
// as a loss of the lock. A member that is behind may report such a delete to a new watch.
func TestOldDeleteIsNoLoss(t *testing.T) {
	b := connect(t, on(start(t, nil)))
	r := acquire(t, b, lock("jobs", "a"))
	g := b.table.find(r.Name, r.Owner, r.Token)
	b.table.heard(g, watch.Event{Changed: g.rev - 1})
	if b.table.find(r.Name, r.Owner, r.Token) == nil {
		t.Error("lost by a delete of before")
	}
	b.table.heard(g, watch.Event{Changed: g.rev + 1})
	if b.table.find(r.Name, r.Owner, r.Token) != nil {
		t.Error("not lost by its delete")
	}
}

// TestEndOfManyLocks checks that a process forgets locks whose time is over, although their keys
// belong to new holders with large values. One answer has no room for all these values.
func TestEndOfManyLocks(t *testing.T) {
	s := start(t, nil)
	was, is := connect(t, on(s)), connect(t, on(s))
	acquireAll := func(b *Backend, ttl time.Duration, value []byte) {
		t.Helper()
		ops := acquires(0, 100)
		for i := range ops {
			ops[i].TTL, ops[i].Value = ttl, value
		}
		for _, res := range b.Batch(t.Context(), ops) {
			must(t, res.Err)
		}
	}
	acquireAll(was, 4*time.Second, nil)
	_, err := plain(t, s).Delete(t.Context(), was.space.names, clientv3.WithPrefix())
	must(t, err)
	acquireAll(is, time.Hour, make([]byte, 60<<10))
	eventually(t, "it forgets them", func() bool {
		was.table.mu.Lock()
		defer was.table.mu.Unlock()
		return len(was.table.entries) == 0
	})
}

// TestMoveDelaysTheDelete checks that an entry is deleted only after the answer to its move. An
// earlier delete would not find the key on its new lease.
func TestMoveDelaysTheDelete(t *testing.T) {
	b := connect(t, on(start(t, nil)))
	r := waitsFor(t, b, lock("jobs", "a"))
	must(t, b.Renew(t.Context(), r))
	e := b.table.find(r.Name, r.Owner, r.Token)
	l, err := b.leases.get(t.Context(), purpose{ttl: 2 * r.TTL})
	must(t, err)
	s := b.moving(e, l)
	b.table.until(e, time.Now()) // e's deadline passes before the request is sent
	must(t, b.txns.Do(t.Context(), s))
	if s.Err != nil || !s.OK {
		t.Errorf("deleted while it moved: %v", s.Err)
	}
	eventually(t, "it is deleted", func() bool {
		h, err := b.Inspect(t.Context(), r.Name)
		must(t, err)
		return !h.Held()
	})
}
