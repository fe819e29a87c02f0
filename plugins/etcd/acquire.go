package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockbench/lockbench/core/driver"
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
	place *place // nil when the owner has none
	step  *step

	started bool // the keepalive, which is the step's
}

// acquisition prepares an acquire; its step is to be submitted.
func (b *Backend) acquisition(ctx context.Context, r driver.Request, now time.Time) (*acquisition, error) {
	if err := b.checkTTL(r.TTL); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, b.interrupted(ctx, false)
	}
	l, err := b.leases.get(ctx, r.TTL)
	if err != nil {
		return nil, err
	}
	return b.acquiring(r, l, now), nil
}

// acquiring prepares an acquire on l.
func (b *Backend) acquiring(r driver.Request, l *lease, now time.Time) *acquisition {
	a := &acquisition{b: b, r: r, began: now, place: b.held.touch(r.Name, r.Owner, now)}
	a.grant = &grant{name: r.Name, owner: r.Owner, label: r.Label, lease: l, deadline: now.Add(r.TTL)}
	if a.place != nil {
		a.grant.place = a.place.id
		b.held.park(a.place) // however long the answer takes
	}
	a.grant.value = record{owner: r.Owner, label: r.Label, place: a.grant.place, value: r.Value}.encode()
	b.held.expect(a.grant)
	a.step = a.txn()
	a.step.settle = a.settle
	if b.held.turn(a.place) || a.place == nil && !b.rivals.recent(r.Name, now) {
		a.step.beside = a.start
	} else {
		a.step.after = true
	}
	return a
}

// start sends the keepalive that a grant needs: beside the Txn, so that all
// acquires of one share it, when the grant is likely, else after it.
func (a *acquisition) start() {
	if !a.started {
		a.step.beat, a.started = a.b.leases.beat(a.grant.lease, a.began), true
	}
}

// txn grants the lock if nobody holds it and nobody waits before this owner.
func (a *acquisition) txn() *step {
	s, name, owner := a.b.space, a.r.Name, a.r.Owner
	value := a.grant.value
	req := &pb.TxnRequest{
		Compare: []*pb.Compare{absent(s.bar(name, owner), nil)},
		Success: []*pb.RequestOp{put(s.hold(name), value, a.grant.lease.id)},
		Failure: append(look(s, name), exists(s.bar(name, owner))),
	}
	if a.place == nil {
		req.Compare = append(req.Compare, absent(s.both(name), beyond(s.both(name))))
		return &step{name: name, req: req, size: len(value)}
	}
	own := s.place(name, a.place.id)
	req.Compare = append(req.Compare,
		absent(s.hold(name), beyond(s.hold(name))), nothingBefore(s.places(name), a.place.rev), at(own, a.place.rev))
	req.Success = append(req.Success, move(own, a.grant.lease.id))
	// The place goes with the lock: a request that arrives late finds none.
	return &step{name: name, in: a.place.epoch, twice: true, req: req, size: len(value)}
}

// settle keeps account of the outcome, whether or not the caller still waits.
// When it is unknown the entry stays, to be deleted at its deadline, and the
// lease is renewed no more.
func (a *acquisition) settle() {
	s := a.step
	if a.place != nil {
		a.b.held.unbusy(a.place)
	}
	if s.err == nil && !s.ok && s.doubt != nil {
		a.recognize(seenIn(s.ops).hold)
	}
	switch {
	case s.err == nil && s.ok:
		a.b.held.confirm(a.grant, s.epoch, s.rev)
	case s.err == nil, a.b.harmless(s.err):
		a.b.held.cancel(a.grant)
	default:
		a.b.leases.retire(a.grant.lease)
	}
}

// recognize takes kv, which has refused the step, for its grant if an earlier try
// of it has put that.
func (a *acquisition) recognize(kv *mvccpb.KeyValue) {
	if kv != nil && kv.Lease == a.grant.lease.id && bytes.Equal(kv.Value, a.grant.value) {
		a.step.ok, a.step.rev = true, kv.CreateRevision
	}
}

func (a *acquisition) finish(ctx context.Context) driver.Result {
	if err := a.step.wait(ctx, a.b); err != nil {
		return driver.Result{Err: err}
	}
	switch err := a.step.err; {
	case is(err, rpctypes.ErrLeaseNotFound), errors.Is(err, errEpoch): // nothing happened
		a.b.leases.retire(a.grant.lease)
		if errors.Is(err, errEpoch) {
			a.b.held.forget(a.r.Name, a.r.Owner)
		}
		return a.retry(ctx, a.b.untouched(err))
	case err != nil:
		return driver.Result{Err: a.b.wrap(err)}
	case !a.step.ok:
		return a.refusal(ctx)
	}
	a.start()
	if err := a.b.leases.await(ctx, a.grant.lease, a.step.beat); err != nil {
		// Granted, but perhaps not for the whole TTL: the caller withdraws it.
		return driver.Result{Err: fmt.Errorf("%w: keepalive beside the grant: %w", driver.ErrUnavailable, err)}
	}
	return driver.Result{Token: a.step.epoch.token(a.step.rev)}
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
	a.b.writer.submit(next.step)
	return next.finish(ctx)
}

func (a *acquisition) refusal(ctx context.Context) driver.Result {
	b, v := a.b, seenIn(a.step.ops)
	b.rivals.note(a.r.Name, a.began)
	if a.step.ops[2].GetResponseRange().GetCount() > 0 {
		return driver.Result{Err: driver.ErrWithdrawn}
	}
	if v.hold != nil {
		if b.ghost(v.hold, a.grant) {
			return driver.Result{Err: fmt.Errorf("etcd: %w: the request was repeated on its way", driver.ErrUnavailable)}
		}
		v.rough = true
		return driver.Result{Err: &driver.HeldError{Holder: b.holder(ctx, v)}}
	}
	if v.head != nil && ownerOf(v.head) != a.r.Owner {
		held := &driver.HeldError{Holder: b.reserved(v)}
		if a.place == nil || !b.evict(ctx, v.head, a.step.epoch) {
			return driver.Result{Err: held}
		}
		a.again = false // the next place may be of a silent process too
		return a.retry(ctx, held)
	}
	// Nobody holds it and nobody is before this owner: its place is not what
	// this process remembers. The store's answer to the next try is final.
	if v.head == nil {
		b.held.forget(a.r.Name, a.r.Owner)
	} else {
		b.held.remember(v.head, a.step.epoch)
	}
	return a.retry(ctx, &driver.HeldError{})
}

// ghost reports whether the key that refused g is g's own: the client may have
// sent the request twice, and the first time it was granted.
func (b *Backend) ghost(kv *mvccpb.KeyValue, g *grant) bool {
	if ownerOf(kv) != g.owner || kv.Lease != g.lease.id {
		return false
	}
	if b.held.find(g.name, g.owner, b.token(kv)) != nil {
		return false // it was asked twice by the caller
	}
	b.leases.retire(g.lease)
	return true
}

// rivals remembers for a moment which locks were refused.
type rivals struct {
	mu   sync.Mutex
	when map[string]time.Time
}

const (
	rivalsFor = time.Second
	maxRivals = 1000
)

func (c *rivals) note(name string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.when == nil || len(c.when) >= maxRivals {
		c.when = map[string]time.Time{}
	}
	c.when[name] = now
}

func (c *rivals) recent(name string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.Sub(c.when[name]) < rivalsFor
}
