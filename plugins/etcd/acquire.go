package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
	"github.com/lockbench/lockbench/plugins/etcd/internal/keepalive"
	"github.com/lockbench/lockbench/plugins/etcd/internal/txn"
)

// TryAcquire puts a key by one transaction (Txn). At the same time, it sends a keepalive of the
// key's etcd lease, unless the lease is new. If the lock is held, it may ask for the holder's TTL.
func (b *Backend) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	res := b.Batch(ctx, []driver.Op{{Kind: driver.OpAcquire, Request: r}})[0]
	return res.Token, res.Err
}

type acquisition struct {
	b      *Backend
	r      driver.Request
	began  time.Time
	again  bool // this is the second try
	entry  *entry
	queued bool // the owner already has an entry in the queue
	lease  *lease
	step   *txn.Step

	keepalive *keepalive.Keepalive // sent with the Txn; nil when none is needed
}

// acquisition prepares an acquire. The caller must then submit the acquisition's step to b.txns.
func (b *Backend) acquisition(ctx context.Context, r driver.Request, now time.Time) (*acquisition, error) {
	if err := cmp.Or(b.checkTTL(r.TTL), b.cluster.Untouched(ctx.Err())); err != nil {
		return nil, err
	}
	if err := b.cluster.Certain(ctx, false); err != nil {
		return nil, err
	}
	l, err := b.leases.get(ctx, purpose{ttl: r.TTL})
	if err != nil {
		return nil, err
	}
	if l.ttl != r.TTL { // the server's shortest TTL is longer
		l.load.Add(-1)
		return nil, errBelow(r.TTL, l.ttl)
	}
	return b.acquiring(r, l, now), nil
}

// acquiring prepares an acquire that puts the owner's entry (a key) on the etcd lease l. If the
// owner waits, this entry is already in the queue. The table does not delete it before the acquire
// is answered.
func (b *Backend) acquiring(r driver.Request, l *lease, now time.Time) *acquisition {
	a, t := &acquisition{b: b, r: r, began: now, lease: l}, b.table
	a.entry = t.queued(r, now)
	if a.queued = a.entry != nil; a.queued {
		t.keep(a.entry, 0)
	} else { // the table has the entry before its key is put, so that it ends in time without an answer
		a.entry = &entry{name: r.Name, owner: r.Owner, label: r.Label, key: b.space.free(r.Name), lease: l, busy: 1, deadline: now.Add(r.TTL)}
		t.mu.Lock()
		if old := t.entries[a.entry.who()]; old == nil || old.ending { // else the owner acquires twice
			t.detach(old)
			t.entries[a.entry.who()] = a.entry
			t.due(a.entry.deadline)
		}
		t.mu.Unlock()
	}
	a.step = a.txn()
	a.step.Alongside, a.step.Done, a.step.OnAnswer = a.start, a.done, a.answered
	return a
}

// start sends a keepalive of the lease at the same time as the acquire's Txn, so that the lease
// lasts for the whole TTL; see txn.Step.Alongside.
func (a *acquisition) start() <-chan struct{} {
	a.keepalive = a.b.leases.keepalive(a.lease, a.began)
	if a.keepalive == nil {
		return nil
	}
	return a.keepalive.Done
}

// txn returns the request that grants the lock. The request does nothing if the lock has an earlier
// entry, or if a tombstone says that the owner was withdrawn.
func (a *acquisition) txn() *txn.Step {
	s, name, e := a.b.space, a.r.Name, a.entry
	tombstone := s.tombstone(name, a.r.Owner)
	value := record{owner: a.r.Owner, label: a.r.Label, value: a.r.Value}.encode()
	step := &txn.Step{Name: name, Size: len(value), Req: &pb.TxnRequest{
		Compare: []*pb.Compare{txn.Absent(tombstone), txn.NoneUnder(s.entries(name))},
		Success: []*pb.RequestOp{txn.Put(e.key, value, a.lease.id)},
		Failure: []*pb.RequestOp{entries(s, name, 1), txn.Exists(tombstone)},
	}}
	if a.queued {
		from := a.b.table.snapshot(e).lease
		step.In, step.Repeatable = e.generation, true // after the first time, the entry is on another lease or gone
		step.Req.Compare = []*pb.Compare{txn.Absent(tombstone), txn.NoneBefore(s.entries(name), e.rev), txn.At(e.key, e.rev), txn.OnLease(e.key, from.id)}
	}
	return step
}

// answered records the acquire's outcome in the table, even if the caller has stopped waiting. If
// the outcome is unknown, the table keeps the entry, and deletes its key at the entry's deadline.
func (a *acquisition) answered() {
	s, t := a.step, a.b.table
	switch {
	case s.OK && !a.queued:
		t.known(a.entry, s.Generation, s.Rev)
		fallthrough
	case s.OK:
		t.moved(a.entry, a.lease)
		t.mu.Lock()
		a.entry.seenAt = max(a.entry.seenAt, s.Rev)
		t.hold(a.entry, a.began.Add(a.r.TTL))
		t.mu.Unlock()
	case a.queued:
		t.notMoved(a.entry, a.lease, s.Err != nil && !a.b.cluster.Harmless(s.Err))
	case s.Err == nil, a.b.cluster.Harmless(s.Err):
		if !t.drop(a.entry) {
			a.lease.load.Add(-1)
		}
	}
	t.unpin(a.entry)
}

// done reports whether the request was refused only because an earlier copy of it had put the key.
func (a *acquisition) done() bool {
	v := lockStateIn(a.step.Found)
	if v.first == nil || v.first.Lease != a.lease.id || string(v.first.Key) != a.entry.key || recordOf(v.first).owner != a.r.Owner {
		return false
	}
	if a.queued {
		return a.entry.is(v.first, v.Generation)
	}
	if !a.b.table.owns(a.entry) {
		return false // the owner has acquired twice
	}
	a.step.Rev = v.first.CreateRevision
	return true
}

func (a *acquisition) finish(ctx context.Context) driver.Result {
	if err := a.b.txns.Wait(ctx, a.step); err != nil {
		return driver.Result{Err: err}
	}
	switch err := a.step.Err; {
	case cluster.Is(err, rpctypes.ErrLeaseNotFound), errors.Is(err, cluster.ErrDataLost): // nothing was done
		a.lease.retired.Store(true)
		if errors.Is(err, cluster.ErrDataLost) {
			a.b.table.drop(a.entry)
		}
		return a.retry(ctx, a.b.cluster.Untouched(err))
	case err != nil:
		return driver.Result{Err: a.b.cluster.Wrap(err)}
	case !a.step.OK:
		return a.refusal(ctx)
	}
	if err := a.b.leases.await(ctx, a.lease, a.keepalive); err != nil {
		// The lock is granted, but perhaps for less than the TTL. So the caller must withdraw the owner.
		// It would not do so if the result wrapped err, which may wrap driver.ErrNotSent, for example.
		return driver.Result{Err: fmt.Errorf("etcd: %w: keepalive beside the grant: %v", driver.ErrUnavailable, err)}
	}
	return driver.Result{Token: a.entry.token()}
}

func (a *acquisition) retry(ctx context.Context, err error) driver.Result {
	if a.again {
		return driver.Result{Err: err}
	}
	next, err := a.b.acquisition(ctx, a.r, a.began)
	if err != nil {
		return driver.Result{Err: err}
	}
	next.again = true
	a.b.txns.Submit(next.step)
	return next.finish(ctx)
}

// refusal returns the error of a refused acquire. If no other owner holds the lock, it tries again.
func (a *acquisition) refusal(ctx context.Context) driver.Result {
	b, v := a.b, lockStateIn(a.step.Found)
	held := &driver.HeldError{}
	switch {
	case a.step.Ops[1].GetResponseRange().GetCount() > 0:
		return driver.Result{Err: driver.ErrWithdrawn}
	case v.first == nil && a.queued: // the holder's entry and the waiter's entry are gone
		b.table.drop(a.entry)
	case v.first != nil && !(a.queued && a.entry.is(v.first, v.Generation)):
		held.Holder = b.holder(ctx, v)
		return driver.Result{Err: held}
	}
	return a.retry(ctx, held)
}
