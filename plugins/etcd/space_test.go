package etcd

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
	etcdserver "github.com/lockbench/lockbench/internal/servers/etcd"
	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
	"github.com/lockbench/lockbench/plugins/etcd/internal/txn"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

// filling is a server. If its armed field is true, the database becomes full at the next Txn with a
// put. As etcd does, it then raises its alarm and returns ErrNoSpace.
type filling struct {
	*servers.Server
	operator *clientv3.Client
	relay    string
	armed    atomic.Bool  // the next transaction fills the database
	blind    atomic.Bool  // transactions without a put fail
	full     atomic.Int64 // number of transactions that were done but answered with ErrNoSpace
}

func startFilling(t *testing.T) *filling {
	t.Helper()
	s := start(t, nil)
	f := &filling{Server: s, operator: plain(t, s)}
	f.relay = relayTo(t, s.Addr(), f.answered)
	return f
}

func (f *filling) answered(method string, request []byte) error {
	var req pb.TxnRequest
	if method != pb.KV_Txn_FullMethodName || proto.Unmarshal(request, &req) != nil {
		return nil
	}
	if !strings.Contains(req.String(), "request_put") {
		if f.blind.Load() {
			return status.Error(codes.Unavailable, "out of reach")
		}
		return nil
	}
	if !f.armed.CompareAndSwap(true, false) {
		return nil
	}
	f.full.Add(1)
	if err := f.alarm(pb.AlarmRequest_ACTIVATE); err != nil {
		return err
	}
	return rpctypes.ErrGRPCNoSpace
}

func (f *filling) alarm(action pb.AlarmRequest_AlarmAction) error {
	ctx := f.operator.Ctx()
	members, err := f.operator.MemberList(ctx)
	if err != nil {
		return err
	}
	_, err = pb.NewMaintenanceClient(f.operator.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{
		Action: action, MemberID: members.Members[0].ID, Alarm: pb.AlarmType_NOSPACE,
	})
	return err
}

// connect returns a backend on f that already has one lease for locks and one for queue entries.
func (f *filling) connect(t *testing.T) *Backend {
	t.Helper()
	b := connect(t, Options{Address: []string{f.relay}})
	must(t, b.Check(t.Context()))
	for _, p := range []purpose{{ttl: lock("", "").TTL}, b.leases.forWaiting()} {
		_, err := b.leases.get(t.Context(), p)
		must(t, err)
	}
	return b
}

// keys returns the keys that begin with key. The Token field of each result is the key's lease id.
func (f *filling) keys(t *testing.T, key string) []driver.Holder {
	t.Helper()
	resp, err := f.operator.Get(t.Context(), key, clientv3.WithPrefix())
	must(t, err)
	var all []driver.Holder
	for _, kv := range resp.Kvs {
		all = append(all, driver.Holder{Name: string(kv.Key), Owner: recordOf(kv).owner, Token: uint64(kv.Lease)})
	}
	return all
}

// lacksSpace fails the test unless err says that there is no space. If unsure is true,
// err must leave the outcome open; otherwise it must say that nothing was done.
func lacksSpace(t *testing.T, err error, unsure bool) {
	t.Helper()
	if !cluster.OutOfSpace(err) || !strings.Contains(err.Error(), "database space exceeded") || !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrNotSent) == unsure {
		t.Errorf("want that there is no space, unsure %v: %v", unsure, err)
	}
}

// TestGrantedWithoutSpace uses a store that grants locks but answers that it has no space. The
// owners must get the locks, whether or not they share one transaction.
func TestGrantedWithoutSpace(t *testing.T) {
	for what, many := range map[string]int{"alone": 1, "together": 5} {
		t.Run(what, func(t *testing.T) {
			f := startFilling(t)
			b := f.connect(t)
			other := acquire(t, b, lock("other", "z"))
			released := acquire(t, b, lock("released", "z"))
			lost := lock("lost", "b") // held by another owner
			acquire(t, b, lock("lost", "z"))
			var ops []driver.Op
			for i := range many {
				ops = append(ops, driver.Op{Kind: driver.OpAcquire, Request: lock(fmt.Sprint("jobs-", i), "a")})
			}
			if many > 1 {
				ops = append(ops, driver.Op{Kind: driver.OpRelease, Request: released}, driver.Op{Kind: driver.OpAcquire, Request: lost})
			}
			f.armed.Store(true)
			if many == 1 {
				must(t, b.Release(t.Context(), released))
			}
			results := b.Batch(t.Context(), ops)
			for i, res := range results[:many] {
				h, err := b.Inspect(t.Context(), ops[i].Name)
				must(t, err)
				if res.Err != nil || h.Token != res.Token || h.Owner != "a" {
					t.Errorf("%s: token %d, %v; held by %s with %d", ops[i].Name, res.Token, res.Err, h.Owner, h.Token)
				}
			}
			if many > 1 {
				must(t, results[many].Err)
				lacksSpace(t, results[many+1].Err, false)
			}
			if n := f.full.Load(); n != 1 {
				t.Fatalf("%d transactions were done without space, want 1: this shows nothing", n)
			}
			for i, res := range results[:many] {
				r := ops[i].Request
				r.Token = res.Token
				must(t, b.Renew(t.Context(), r))
				must(t, b.Release(t.Context(), r))
			}
			if b.table.find("other", "z", other.Token).lease.retired.Load() {
				t.Error("the lease of all was given up")
			}
			if all, err := f.operator.Get(t.Context(), b.space.names, clientv3.WithPrefix()); err != nil || all.Count != 2 {
				t.Errorf("of 2 locks that are held %d keys are left, %v", all.Count, err)
			}
		})
	}
}

// TestWaitedForWithoutSpace uses a store that executes a put but answers that it has no space. A
// waiter must get its queue entry, and later the lock, although it gets this answer.
func TestWaitedForWithoutSpace(t *testing.T) {
	f := startFilling(t)
	b := f.connect(t)
	first, r := acquire(t, b, lock("jobs", "first")), lock("jobs", "next")
	f.armed.Store(true)
	must(t, backendtest.Err(b.Wait(t.Context(), r, 10*time.Millisecond)))
	e := b.table.entries[entryKey{"jobs", "next"}]
	if all := f.keys(t, b.space.entries("jobs")); e == nil || len(all) != 2 || all[1].Token != uint64(e.lease.id) || e.lease.retired.Load() {
		t.Fatalf("the entry %+v, in the store %+v", e, all)
	}
	lacksSpace(t, backendtest.Err(b.Wait(t.Context(), lock("jobs", "late"), 10*time.Millisecond)), false)
	must(t, f.alarm(pb.AlarmRequest_DEACTIVATE))
	must(t, b.Release(t.Context(), first))
	must(t, backendtest.Err(b.Wait(t.Context(), r, 10*time.Millisecond)))
	f.armed.Store(true)
	r = acquire(t, b, r)
	must(t, b.Release(t.Context(), r))
	if all := f.keys(t, b.space.entries("jobs")); len(all) != 0 || f.full.Load() != 2 {
		t.Errorf("%d without space, left is %+v", f.full.Load(), all)
	}
}

// TestWithdrawnWithoutSpace checks that a withdrawal without space for the
// tombstone still deletes the owner's entries, and reports the lack of space.
func TestWithdrawnWithoutSpace(t *testing.T) {
	f := startFilling(t)
	b := f.connect(t)
	acquire(t, b, lock("jobs", "a"))
	must(t, backendtest.Err(b.Wait(t.Context(), lock("jobs", "b"), 10*time.Millisecond)))
	f.armed.Store(true) // the put of the tombstone fills the database
	for _, owner := range []string{"a", "b"} {
		lacksSpace(t, b.Withdraw(t.Context(), "jobs", owner), true)
	}
	if all := f.keys(t, b.space.entries("jobs")); len(all) != 0 {
		t.Errorf("left is %+v", all)
	}
	must(t, f.alarm(pb.AlarmRequest_DEACTIVATE))
	must(t, b.Withdraw(t.Context(), "jobs", "b"))
	if _, err := b.TryAcquire(t.Context(), lock("jobs", "b")); !errors.Is(err, driver.ErrWithdrawn) {
		t.Errorf("an owner that was withdrawn: %v", err)
	}
}

// TestUnknownWithoutSpace checks a grant whose only answer is ErrNoSpace and whose key cannot be
// read. The lock must end in time, even while another lock on its lease is renewed.
func TestUnknownWithoutSpace(t *testing.T) {
	f := startFilling(t)
	b := f.connect(t)
	kept := short("kept", "a")
	kept = acquire(t, b, kept)
	f.blind.Store(true)
	f.armed.Store(true)
	_, err := b.TryAcquire(t.Context(), short("ghost", "b"))
	lacksSpace(t, err, true)
	f.blind.Store(false)
	if all := f.keys(t, b.space.entries("ghost")); len(all) != 1 {
		t.Fatalf("there is no ghost: %+v", all)
	}
	stop := keepRenewing(t, b, kept)
	heldUntil(t, b, "ghost")
	must(t, stop())
	must(t, b.Renew(t.Context(), kept))
}

// onItsLease fails the test unless r's key is on the lease that b renews for r.
func (f *filling) onItsLease(t *testing.T, b *Backend, r driver.Request) {
	t.Helper()
	l, all := b.table.find(r.Name, r.Owner, r.Token).lease, f.keys(t, b.space.entries(r.Name))
	if len(all) != 1 || all[0].Token != uint64(l.id) {
		t.Errorf("renewed is the lease %x, in the store is %+v", l.id, all)
	}
}

// TestMovedWithoutSpace checks a lock whose move to another lease got the answer ErrNoSpace. The
// lock must be renewed on its present lease. While b does not know this lease, no renewal may
// succeed.
func TestMovedWithoutSpace(t *testing.T) {
	f := startFilling(t)
	before, b := f.connect(t), f.connect(t)
	r, other := acquire(t, before, lock("jobs", "a")), acquire(t, before, lock("others", "a"))
	must(t, before.Close(t.Context()))
	f.armed.Store(true)
	must(t, b.Renew(t.Context(), r))
	f.onItsLease(t, b, r)
	must(t, f.alarm(pb.AlarmRequest_DEACTIVATE))

	_, err := b.adopt(t.Context(), other)
	must(t, err)
	f.blind.Store(true)
	f.armed.Store(true)
	lacksSpace(t, b.Renew(t.Context(), other), true)
	f.blind.Store(false)
	must(t, b.Renew(t.Context(), other))
	f.onItsLease(t, b, other)
	must(t, f.alarm(pb.AlarmRequest_DEACTIVATE))
	must(t, b.Renew(t.Context(), other))
	f.onItsLease(t, b, other)
	if n := f.full.Load(); n != 2 {
		t.Errorf("%d moves were done without space, want 2: this shows nothing", n)
	}
}

// TestLateMove drops the answer to a request that moves a lock to another lease. If the request
// arrives when the lock is already on a third lease, it must not move the lock. If it arrived in
// time, this process and the next process must find the lock's lease.
func TestLateMove(t *testing.T) {
	f := startFilling(t)
	b, next := f.connect(t), f.connect(t)
	lose := func(name string) (r driver.Request, late *txn.Step) {
		t.Helper()
		r = waitsFor(t, b, lock(name, "a"))
		e := b.table.find(r.Name, r.Owner, r.Token)
		l, err := b.leases.get(t.Context(), purpose{ttl: r.TTL})
		must(t, err)
		s := b.moving(e, l)
		s.Err = errors.New("no answer")
		s.OnAnswer()
		return r, &txn.Step{Name: s.Name, In: s.In, Req: s.Req}
	}
	r, late := lose("late")
	b.leases.retireAll() // as if the lock's lease had ended
	must(t, b.Renew(t.Context(), r))
	must(t, b.txns.Do(t.Context(), late))
	if late.Err != nil || late.OK {
		t.Errorf("the late move was done: %v", late.Err)
	}
	f.onItsLease(t, b, r)

	r, late = lose("arrived")
	must(t, b.txns.Do(t.Context(), late))
	must(t, b.Renew(t.Context(), r))
	f.onItsLease(t, b, r)

	r, late = lose("kept")
	must(t, b.txns.Do(t.Context(), late))
	r.Keep = time.Second
	eventually(t, "it is kept", func() bool { return b.Release(t.Context(), r) == nil })
	f.onItsLease(t, b, r)

	r, late = lose("adopted")
	_, err := next.adopt(t.Context(), r)
	must(t, err)
	must(t, b.txns.Do(t.Context(), late))
	if err := next.Renew(t.Context(), r); !errors.Is(err, errElsewhere) {
		t.Errorf("a move from where it is no more: %v", err)
	}
	must(t, next.Renew(t.Context(), r))
	f.onItsLease(t, next, r)
}

// TestProclaimedWithoutSpace checks that Proclaim succeeds if the value was put
// although the answer is ErrNoSpace. A refused value must not be published.
func TestProclaimedWithoutSpace(t *testing.T) {
	f := startFilling(t)
	b := f.connect(t)
	r := acquire(t, b, lock("jobs", "a"))
	r.Value = []byte("one")
	f.armed.Store(true)
	must(t, b.Proclaim(t.Context(), r))
	r.Value = []byte("two")
	lacksSpace(t, b.Proclaim(t.Context(), r), false)
	if h, err := b.Inspect(t.Context(), "jobs"); err != nil || string(h.Value) != "one" {
		t.Errorf("%+v, %v", h, err)
	}
}

// TestUnderAlarm checks requests that the store refuses because of its space alarm. Their
// errors must say that nothing was done, and no lease of other owners may be lost.
func TestUnderAlarm(t *testing.T) {
	f := startFilling(t)
	b := f.connect(t)
	held := acquire(t, b, lock("held", "a"))
	must(t, backendtest.Err(b.Wait(t.Context(), lock("held", "b"), 10*time.Millisecond)))
	must(t, f.alarm(pb.AlarmRequest_ACTIVATE))
	for _, r := range []driver.Request{lock("jobs", "a"), lock("held", "b")} {
		_, err := b.TryAcquire(t.Context(), r)
		lacksSpace(t, err, false)
	}
	lacksSpace(t, b.Check(t.Context()), false)
	for _, l := range []*lease{b.table.find("held", "a", held.Token).lease, b.table.entries[entryKey{"held", "b"}].lease} {
		if l.retired.Load() {
			t.Errorf("a lease for %v is renewed no more", l.ttl)
		}
	}
	must(t, b.Renew(t.Context(), held))
	must(t, b.Break(t.Context(), "held", held.Token))
	isNotHeld(t, b.Release(t.Context(), held))
}

// TestSpaceRunsOut lets many hosts acquire locks until the database is full. The store must then
// have the keys of the granted locks and no other keys.
func TestSpaceRunsOut(t *testing.T) {
	s := start(t, &etcdserver.Options{Args: []string{"--quota-backend-bytes=2000000"}})
	value := []byte(strings.Repeat("x", 2_000))
	var mu sync.Mutex
	var granted []string
	var refused atomic.Int64
	var group sync.WaitGroup
	var backends []*Backend
	for range 20 {
		b := connect(t, on(s))
		must(t, b.Check(t.Context()))
		backends = append(backends, b)
	}
	for h, b := range backends {
		group.Go(func() {
			for i := 0; ; i++ {
				r := lock(fmt.Sprintf("jobs-%d-%d", h, i), "a")
				r.TTL, r.Value = time.Minute, value
				_, err := b.TryAcquire(t.Context(), r)
				mu.Lock()
				if err == nil {
					granted = append(granted, r.Name)
				}
				mu.Unlock()
				if cluster.OutOfSpace(err) {
					refused.Add(1)
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	for _, b := range backends {
		lacksSpace(t, b.Check(t.Context()), false)
	}
	b := connect(t, on(s))
	var held []string
	must(t, b.List(t.Context(), "", func(h driver.Holder) bool {
		held = append(held, h.Name)
		return true
	}))
	slices.Sort(granted)
	slices.Sort(held)
	if !slices.Equal(granted, held) || refused.Load() != 20 {
		t.Errorf("%d were granted, %d are held, %d hosts were refused", len(granted), len(held), refused.Load())
	}
}

// TestOrderWithoutSpace lets owners wait for a lock that becomes free while the store has no space.
// The owners must be granted the lock in the order in which they came.
func TestOrderWithoutSpace(t *testing.T) {
	t.Parallel() // most of its time is waiting
	f := startFilling(t)
	watcher := f.connect(t)
	first := acquire(t, watcher, lock("jobs", "first"))
	granted := make(chan int, 4)
	for i, c := range hosts(t, f.Server, 4) {
		go func() {
			l, err := c.Lock("jobs", nil)
			must(t, err)
			lease, err := l.Acquire(t.Context())
			must(t, err)
			granted <- i
			must(t, lease.Release(t.Context()))
		}()
		eventually(t, "it waits", func() bool {
			h, err := watcher.Inspect(t.Context(), "jobs")
			return err == nil && h.Waiters == i+1
		})
	}
	must(t, f.alarm(pb.AlarmRequest_ACTIVATE))
	must(t, watcher.Release(t.Context(), first))
	<-time.After(entryFor / 2)
	must(t, f.alarm(pb.AlarmRequest_DEACTIVATE))
	for i := range 4 {
		select {
		case got := <-granted:
			if got != i {
				t.Errorf("waiter %d was granted as number %d", got, i)
			}
		case <-time.After(testTimeout):
			t.Fatalf("waiter %d was not granted", i)
		}
	}
}

// TestUnknownDeleteWithoutSpace checks that a full store loses no renewed
// lease, even if a delete or an acquire got no answer.
func TestUnknownDeleteWithoutSpace(t *testing.T) {
	for _, kind := range []driver.OpKind{driver.OpRelease, driver.OpAcquire} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			t.Parallel() // most of its time is waiting
			s := start(t, &etcdserver.Options{Args: []string{"--quota-backend-bytes=2000000"}})
			operator := plain(t, s)
			var lose atomic.Bool
			b := connect(t, Options{Address: []string{relayTo(t, s.Addr(), func(method string, request []byte) error {
				var req pb.TxnRequest
				if method != pb.KV_Txn_FullMethodName || proto.Unmarshal(request, &req) != nil || !strings.Contains(req.String(), "unknown") {
					return nil
				}
				if lose.Load() {
					return status.Error(codes.Unavailable, "the answer is lost")
				}
				return nil
			})}})
			c := core.New(b, &core.Options{Logger: slog.New(slog.DiscardHandler)})
			take := func(name string) (*core.Lease, error) {
				l, err := c.Lock(name, &core.LockOptions{TTL: 4 * time.Second})
				must(t, err)
				return l.TryAcquire(t.Context())
			}
			var held []*core.Lease
			for i := range 20 {
				l, err := take(fmt.Sprint("jobs-", i))
				must(t, err)
				held = append(held, l)
			}
			var unknown *core.Lease
			var err error
			if kind == driver.OpRelease {
				unknown, err = take("unknown")
				must(t, err)
			}
			full := make(chan struct{})
			go func() {
				defer close(full)
				for i := 0; ; i++ {
					if _, err := operator.Put(t.Context(), fmt.Sprint("noise-", i), strings.Repeat("x", 20_000)); err != nil {
						return
					}
				}
			}()
			lose.Store(true)
			if kind == driver.OpRelease {
				err = unknown.Release(t.Context())
			} else {
				_, err = take("unknown")
			}
			if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrNotSent) {
				t.Errorf("its outcome is known: %v", err)
			}
			lose.Store(false)
			<-full
			began := time.Now()
			for i, l := range held {
				eventually(t, "it is renewed", func() bool {
					if err := l.Err(); err != nil {
						t.Fatalf("lease %d: %v", i, err)
					}
					return l.Deadline().After(began.Add(14 * time.Second))
				})
			}
		})
	}
}
