package etcd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/plugins/etcd/internal/keepalive"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

// waitsFor makes the owner of r wait behind another holder, which then releases the lock.
func waitsFor(t *testing.T, b *Backend, r driver.Request) driver.Request {
	t.Helper()
	holder := acquire(t, b, lock(r.Name, "before-"+r.Owner))
	must(t, backendtest.Err(b.Wait(t.Context(), r, time.Millisecond)))
	must(t, b.Release(t.Context(), holder))
	g, err := b.Wait(t.Context(), r, 10*time.Second)
	must(t, err)
	if g.Token <= holder.Token {
		t.Fatalf("granted %+v after token %d", g, holder.Token)
	}
	r.Token = g.Token
	return r
}

// TestGrantOfTheQueue checks the grant that a waiter gets when the holder's entry ends. The lock
// must have the waiter's value and label. The grant must not outlast the lease of the waiter's
// entry. The first renewal must move the lock to a lease with the lock's TTL, and keep the token.
func TestGrantOfTheQueue(t *testing.T) {
	s := start(t, nil)
	b, other, operator := connect(t, on(s)), connect(t, on(s)), plain(t, s)
	holder := acquire(t, other, lock("jobs", "first"))
	next := lock("jobs", "next")
	next.Value = []byte("value")
	must(t, backendtest.Err(b.Wait(t.Context(), next, time.Millisecond)))
	must(t, other.Release(t.Context(), holder))
	g, err := b.Wait(t.Context(), next, 10*time.Second)
	must(t, err)
	if left := time.Until(g.Sent.Add(g.For)); g.Token <= holder.Token || left <= 0 || left > entryFor || g.For != entryFor {
		t.Fatalf("granted %+v, with %v left, after token %d", g, left, holder.Token)
	}
	if next.Token = g.Token; next.Token == 0 {
		t.Fatal("no grant")
	}
	h, err := other.Inspect(t.Context(), "jobs")
	must(t, err)
	if h.Owner != next.Owner || h.Label != next.Label || string(h.Value) != "value" || h.Token != next.Token || h.Waiters != 0 || h.TTL > entryFor {
		t.Errorf("in the store: %+v", h)
	}
	must(t, b.Renew(t.Context(), next))
	if h, err := other.Inspect(t.Context(), "jobs"); err != nil || h.Token != next.Token || h.TTL <= entryFor {
		t.Errorf("renewed: %+v, %v", h, err)
	}
	kvs, err := operator.Get(t.Context(), b.space.entries("jobs"), clientv3.WithPrefix())
	must(t, err)
	if e := b.table.find("jobs", "next", next.Token); len(kvs.Kvs) != 1 || kvs.Kvs[0].Lease != e.lease.id || e.short() {
		t.Errorf("%v on the lease %x", kvs.Kvs, e.lease.id)
	}
	if _, err := b.TryAcquire(t.Context(), next); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("asking again: %v", err)
	}
	must(t, b.Release(t.Context(), next))
	isNotHeld(t, b.Release(t.Context(), next)) // releases it a second time
}

// TestGrantWithoutKeepalive checks an acquire that is granted, but whose keepalive is refused. The
// error must not say that nothing was done. The caller would then not withdraw the owner.
func TestGrantWithoutKeepalive(t *testing.T) {
	b := connect(t, on(start(t, nil)))
	l, err := b.leases.get(t.Context(), purpose{ttl: lock("", "").TTL})
	must(t, err)
	for _, refusal := range []error{rpctypes.ErrGRPCNoLeader, rpctypes.ErrGRPCPermissionDenied, b.cluster.Wrap(rpctypes.ErrGRPCNoLeader)} {
		a := b.acquiring(lock(refusal.Error(), "a"), l, time.Now())
		must(t, b.txns.Do(t.Context(), a.step))
		a.keepalive = &keepalive.Keepalive{Done: make(chan struct{}), Err: refusal}
		close(a.keepalive.Done)
		err := a.finish(t.Context()).Err
		if !a.step.OK || !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrNotSent) || errors.Is(err, driver.ErrDenied) {
			t.Errorf("granted %v: %v", a.step.OK, err)
		}
	}
}

// TestNoQuestion checks when a waiter asks the store whether it holds the lock. A waiter need not
// ask if the entry in front was marked as the lock before that entry ended. If the entry in front
// ends without a mark, because its owner has given up, the waiter must ask and keep waiting.
func TestNoQuestion(t *testing.T) {
	s := start(t, nil)
	var reads atomic.Int64
	relay := relayTo(t, s.Addr(), func(method string, request []byte) error {
		var req pb.TxnRequest
		if method == pb.KV_Txn_FullMethodName && proto.Unmarshal(request, &req) == nil && strings.Contains(req.String(), "max_create_revision") {
			reads.Add(1)
		}
		return nil
	})
	other, operator := connect(t, on(s)), plain(t, s)
	holder := acquire(t, other, lock("jobs", "holder"))
	grants := make(chan driver.Request, 5)
	for i := range 5 {
		watched := watchers(t, s)
		b := connect(t, Options{Address: []string{relay}})
		go func() {
			r := lock("jobs", fmt.Sprint("o", i))
			g, err := b.Wait(t.Context(), r, 20*time.Second)
			if r.Token = g.Token; err != nil && t.Context().Err() == nil { // o3 waits to the test's end
				t.Errorf("waiter %d: %v", i, err)
			}
			grants <- r
		}()
		eventually(t, "it waits", func() bool {
			h, err := other.Inspect(t.Context(), "jobs")
			return err == nil && h.Waiters == i+1 && watchers(t, s) >= watched+2 // its watches are open
		})
	}
	before := reads.Load()
	ends := func(r driver.Request, want string, asked int64, version int64) driver.Request {
		t.Helper()
		must(t, other.Release(t.Context(), r))
		next := <-grants
		if next.Owner != want || next.Token <= r.Token {
			t.Fatalf("granted to %+v, want %s", next, want)
		}
		eventually(t, "it is put once more", func() bool {
			kvs, err := operator.Get(t.Context(), other.space.entries("jobs"), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
			must(t, err)
			return kvs.Kvs[0].Version == version
		})
		if n := reads.Load() - before; n != asked {
			t.Errorf("the store was asked %d times until %s was granted it, want %d", n, want, asked)
		}
		return next
	}
	first := ends(holder, "o0", 0, 1) // no mark: o0 came when the holder had the lock
	second := ends(ends(first, "o1", 1, 2), "o2", 1, 2)
	must(t, other.Withdraw(t.Context(), "jobs", "o3"))
	eventually(t, "the one behind it asks", func() bool { return reads.Load()-before > 1 })
	select {
	case r := <-grants:
		if r.Token != 0 {
			t.Errorf("granted to %+v", r)
		}
	case <-time.After(10 * time.Millisecond):
	}
	must(t, other.Release(t.Context(), second))
	for r := range grants {
		if r.Owner == "o4" {
			if r.Token <= second.Token {
				t.Errorf("granted %+v", r)
			}
			break
		}
	}
}

// TestEntryDeletedByHand deletes a waiter's entry, or revokes its lease, as an operator
// may, and then releases the lock at once. The waiter must not take the release as a
// grant, because it has no entry any more, and the next waiter holds the lock.
func TestEntryDeletedByHand(t *testing.T) {
	s := start(t, nil)
	operator := plain(t, s)
	for what, end := range map[string]func(b *Backend, e *entry) error{
		"deleted": func(_ *Backend, e *entry) error { return backendtest.Err(operator.Delete(t.Context(), e.key)) },
		"revoked": func(_ *Backend, e *entry) error {
			return backendtest.Err(operator.Revoke(t.Context(), clientv3.LeaseID(e.lease.id)))
		},
	} {
		t.Run(what, func(t *testing.T) {
			bs := []*Backend{connect(t, on(s)), connect(t, on(s)), connect(t, on(s))}
			for i := range 20 {
				rs := []driver.Request{lock(what, fmt.Sprint("holder", i)), lock(what, fmt.Sprint("harmed", i)), lock(what, fmt.Sprint("next", i))}
				rs[0] = acquire(t, bs[0], rs[0])
				grants := make([]chan driver.Grant, 3)
				for i := 1; i < 3; i++ {
					grants[i] = make(chan driver.Grant, 1)
					go func() {
						g, err := bs[i].Wait(t.Context(), rs[i], 20*time.Second)
						if err != nil {
							t.Error(err)
						}
						grants[i] <- g
					}()
					eventually(t, "it waits", func() bool {
						h, err := bs[0].Inspect(t.Context(), what)
						e := entryOf(bs[i], rs[i])
						return err == nil && h.Waiters == i && e != nil && bs[i].table.watches.Covers(e.watch, math.MaxInt64)
					})
				}
				b := bs[1]
				must(t, end(b, entryOf(b, rs[1])))
				must(t, bs[0].Release(t.Context(), rs[0]))
				if g := <-grants[1]; g.Token != 0 {
					t.Errorf("a waiter without an entry was granted %+v", g)
				}
				if rs[2].Token = (<-grants[2]).Token; rs[2].Token <= rs[0].Token {
					t.Fatalf("the next has token %d after %d", rs[2].Token, rs[0].Token)
				}
				must(t, bs[2].Release(t.Context(), rs[2]))
				must(t, b.Withdraw(t.Context(), what, rs[1].Owner))
			}
		})
	}
}

func entryOf(b *Backend, r driver.Request) *entry {
	b.table.mu.Lock()
	defer b.table.mu.Unlock()
	if e := b.table.entries[entryKey{r.Name, r.Owner}]; e != nil && e.watch != nil {
		return e
	}
	return nil
}

func watchers(t *testing.T, s *servers.Server) int {
	t.Helper()
	page, err := http.Get("http://" + s.Addr() + "/metrics")
	must(t, err)
	defer page.Body.Close()
	text, err := io.ReadAll(page.Body)
	must(t, err)
	_, text, _ = bytes.Cut(text, []byte("\netcd_debugging_mvcc_watcher_total "))
	text, _, _ = bytes.Cut(text, []byte("\n"))
	n, err := strconv.Atoi(string(text))
	must(t, err)
	return n
}

// TestStorm lets 32 simulated processes compete for one lock, and ends them at random
// moments. It checks that no two of them hold the lock at the same time.
func TestStorm(t *testing.T) {
	s := start(t, nil)
	backendtest.Storm(t, func() (driver.Backend, error) { return Open(&Options{Address: []string{s.Addr()}}) }, 20*time.Second,
		func() time.Duration { return time.Duration(2+rand.N(2)) * time.Second })
}
