package etcd

import (
	"bytes"
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

// TryAcquire is one Txn, and beside it a keepalive of the lease that the key is
// put on. A refusal costs another request for the holder's TTL.
func (b *Backend) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	res := b.one(ctx, driver.OpAcquire, r)
	return res.Token, res.Err
}

// acquisition is an acquire under way.
type acquisition struct {
	b     *Backend
	r     driver.Request
	began time.Time
	again bool // the second try
	grant *grant
	entry *entry // nil when the owner has none
	step  *txn.Step

	started   bool
	keepalive *keepalive.Keepalive // nil when none is needed
}

// acquisition prepares an acquire; its step is to be submitted.
func (b *Backend) acquisition(ctx context.Context, r driver.Request, now time.Time) (*acquisition, error) {
	if err := b.checkTTL(r.TTL); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, b.cluster.Interrupted(ctx, false)
	}
	if err := b.cluster.Certain(ctx, false); err != nil {
		return nil, err
	}
	l, err := b.leases.get(ctx, purpose{ttl: r.TTL})
	if err != nil {
		return nil, err
	}
	return b.acquiring(r, l, now), nil
}

// acquiring prepares an acquire on l.
func (b *Backend) acquiring(r driver.Request, l *lease, now time.Time) *acquisition {
	a := &acquisition{b: b, r: r, began: now, entry: b.table.touchEntry(r.Name, r.Owner, now)}
	a.grant = &grant{name: r.Name, owner: r.Owner, label: r.Label, lease: l, deadline: now.Add(r.TTL)}
	if a.entry != nil {
		a.grant.entry = a.entry.id
		b.table.pin(a.entry) // however long the answer takes
		b.table.keepEntry(a.entry, now)
	}
	a.grant.value = record{owner: r.Owner, label: r.Label, entry: a.grant.entry, value: r.Value}.encode()
	b.table.expect(a.grant)
	a.step = a.txn()
	a.step.Done, a.step.OnAnswer = a.done, a.answered
	if b.table.mayBeNext(a.entry) || a.entry == nil && !b.refused.Has(r.Name) {
		a.step.Beside = a.start
	} else {
		a.step.After = true
	}
	return a
}

// start sends the keepalive that a grant needs: beside the Txn, so that all
// acquires of one share it, when the grant is likely, else after it. It returns
// what is closed when that is answered.
func (a *acquisition) start() <-chan struct{} {
	if !a.started {
		a.keepalive, a.started = a.b.leases.keepalive(a.grant.lease, a.began), true
	}
	if a.keepalive == nil {
		return nil
	}
	return a.keepalive.Done
}

// txn grants the lock if nobody holds it and nobody waits before this owner.
func (a *acquisition) txn() *txn.Step {
	s, name, owner := a.b.space, a.r.Name, a.r.Owner
	value := a.grant.value
	req := &pb.TxnRequest{
		Compare: []*pb.Compare{txn.Absent(s.tombstone(name, owner))},
		Success: []*pb.RequestOp{txn.Put(s.hold(name), value, a.grant.lease.id)},
		Failure: append(look(s, name), txn.Exists(s.tombstone(name, owner))),
	}
	if a.entry == nil {
		req.Compare = append(req.Compare, txn.NoneUnder(s.both(name)))
		return &txn.Step{Name: name, Req: req, Size: len(value)}
	}
	own := s.entry(name, a.entry.id)
	req.Compare = append(req.Compare,
		txn.NoneUnder(s.hold(name)), txn.NoneBefore(s.entries(name), a.entry.rev), txn.At(own, a.entry.rev))
	req.Success = append(req.Success, txn.Move(own, a.grant.lease.id))
	// The entry goes with the lock: a request that arrives late finds none.
	return &txn.Step{Name: name, In: a.entry.generation, Twice: true, Req: req, Size: len(value)}
}

// answered keeps account of the outcome, whether or not the caller still waits.
// When it is unknown the grant stays, to be deleted at its deadline, and the
// lease is renewed no more.
func (a *acquisition) answered() {
	s := a.step
	if a.entry != nil {
		a.b.table.unpin(a.entry)
	}
	switch {
	case s.Err == nil && s.OK:
		a.b.table.confirm(a.grant, s.Generation, s.Rev)
	case s.Err == nil, a.b.cluster.Harmless(s.Err):
		a.b.table.cancel(a.grant)
	default:
		a.b.leases.retire(a.grant.lease)
	}
}

// done reports whether a try before has put the key, which stands in the way of
// this one.
func (a *acquisition) done() bool {
	kv := seenIn(a.step.Generation, a.step.Ops).hold
	if kv == nil || kv.Lease != a.grant.lease.id || !bytes.Equal(kv.Value, a.grant.value) {
		return false
	}
	a.step.Rev = kv.CreateRevision
	return true
}

func (a *acquisition) finish(ctx context.Context) driver.Result {
	if err := a.b.txns.Wait(ctx, a.step); err != nil {
		return driver.Result{Err: err}
	}
	switch err := a.step.Err; {
	case cluster.Is(err, rpctypes.ErrLeaseNotFound), errors.Is(err, cluster.ErrDataLost): // nothing happened
		a.b.leases.retire(a.grant.lease)
		if errors.Is(err, cluster.ErrDataLost) {
			a.b.table.forgetEntry(a.r.Name, a.r.Owner)
		}
		return a.retry(ctx, a.b.cluster.Untouched(err))
	case err != nil:
		return driver.Result{Err: a.b.cluster.Wrap(err)}
	case !a.step.OK:
		return a.refusal(ctx)
	}
	a.start()
	if err := a.b.leases.await(ctx, a.grant.lease, a.keepalive); err != nil {
		// Granted, but perhaps not for the whole TTL: the caller withdraws it.
		return driver.Result{Err: fmt.Errorf("%w: keepalive beside the grant: %w", driver.ErrUnavailable, err)}
	}
	return driver.Result{Token: a.step.Generation.Token(a.step.Rev)}
}

// retry asks once more after what a caller need not know of.
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

// refusal describes who holds the lock, or asks once more when that has changed.
func (a *acquisition) refusal(ctx context.Context) driver.Result {
	b, v := a.b, seenIn(a.step.Generation, a.step.Ops)
	b.refused.Put(a.r.Name, struct{}{})
	if a.step.Ops[2].GetResponseRange().GetCount() > 0 {
		return driver.Result{Err: driver.ErrWithdrawn}
	}
	if v.hold != nil {
		if b.repeated(v, a.grant) {
			return driver.Result{Err: fmt.Errorf("etcd: %w: the request was repeated on its way", driver.ErrUnavailable)}
		}
		v.approximateTTL = true
		return driver.Result{Err: &driver.HeldError{Holder: b.holder(ctx, v)}}
	}
	if v.head != nil && ownerOf(v.head) != a.r.Owner {
		held := &driver.HeldError{Holder: b.reservation(v)}
		if a.entry == nil || !b.evict(ctx, v) {
			return driver.Result{Err: held}
		}
		a.again = false // the next entry may be of a silent process too
		return a.retry(ctx, held)
	}
	// Nobody holds it and nobody is before this owner: its entry is not what
	// this process remembers. The store's answer to the next try is final.
	if v.head == nil {
		b.table.forgetEntry(a.r.Name, a.r.Owner)
	} else {
		b.table.adoptEntry(v.head, v.generation)
	}
	return a.retry(ctx, &driver.HeldError{})
}

// repeated reports whether the key that refused g is g's own: the client may have
// sent the request twice, and the first time it was granted.
func (b *Backend) repeated(v seen, g *grant) bool {
	if ownerOf(v.hold) != g.owner || v.hold.Lease != g.lease.id {
		return false
	}
	if b.table.find(g.name, g.owner, v.generation.Token(v.hold.CreateRevision)) != nil {
		return false // it was asked twice by the caller
	}
	b.leases.retire(g.lease)
	return true
}
