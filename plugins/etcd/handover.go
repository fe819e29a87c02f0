package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockbench/lockbench/core/driver"
)

// Handover is one Txn: it deletes from's key and puts the other one of the same
// name, so that its create revision is a new token. A place in the queue goes
// with the lock: whoever waits behind it is not woken.
func (b *Backend) Handover(ctx context.Context, from, next driver.Request) (uint64, error) {
	now := time.Now()
	if err := b.checkTTL(next.TTL); err != nil {
		return 0, err
	}
	old, err := b.known(ctx, from)
	if err != nil {
		return 0, err
	}
	token, err := b.handover(ctx, old, next, now)
	var over *driver.NotHeldError
	if old.place != "" && errors.As(err, &over) && over.Holder.Owner == old.owner {
		b.held.losePlace(old) // only the place is gone
		return b.handover(ctx, old, next, now)
	}
	return token, err
}

func (b *Backend) handover(ctx context.Context, old *grant, next driver.Request, now time.Time) (uint64, error) {
	l, err := b.leases.get(ctx, next.TTL)
	if err != nil {
		return 0, err
	}
	g := &grant{name: next.Name, owner: next.Owner, label: next.Label, slot: old.slot.other(), place: old.place, lease: l, deadline: now.Add(next.TTL)}
	g.value = record{owner: g.owner, label: g.label, place: g.place, value: next.Value}.encode()
	s := b.handing(old, g)
	beat := b.leases.beat(l, now)
	b.writer.submit(s)
	if err := s.wait(ctx, b); err != nil {
		return 0, err
	}
	switch {
	case is(s.err, rpctypes.ErrLeaseNotFound):
		b.leases.retire(l)
		return 0, b.untouched(s.err)
	case errors.Is(s.err, errEpoch):
		return 0, &driver.NotHeldError{}
	case s.err != nil:
		return 0, b.wrap(s.err)
	case !s.ok && s.ops[2].GetResponseRange().GetCount() > 0:
		return 0, driver.ErrWithdrawn
	case !s.ok:
		return 0, &driver.NotHeldError{Holder: b.holder(ctx, seenIn(s.ops))}
	}
	if err := b.leases.await(ctx, l, beat); err != nil {
		return 0, fmt.Errorf("%w: keepalive beside the handover: %w", driver.ErrUnavailable, err)
	}
	return s.epoch.token(s.rev), nil
}

func (b *Backend) handing(old, g *grant) *step {
	key, to, bar := b.space.hold(old.name, old.slot), b.space.hold(g.name, g.slot), b.space.bar(g.name, g.owner)
	s := &step{name: g.name, in: old.epoch, size: len(g.value), req: &pb.TxnRequest{
		Compare: []*pb.Compare{at(key, old.rev), absent(bar, nil)},
		Success: []*pb.RequestOp{remove(key), put(to, g.value, g.lease.id)},
		Failure: append(look(b.space, g.name), exists(bar)),
	}}
	if g.place != "" {
		own := b.space.place(g.name, g.place)
		s.req.Compare = append(s.req.Compare, present(own))
		s.req.Success = append(s.req.Success, move(own, g.lease.id))
	}
	if p := b.held.placeOf(g.name, g.owner); p != nil { // it waited on its own before
		s.req.Success = append(s.req.Success, remove(b.space.place(g.name, p.id)))
	}
	b.held.depart(old)
	b.held.expect(g)
	s.settle = func() { b.handed(old, g, s) }
	return s
}

func (b *Backend) handed(old, g *grant, s *step) {
	if s.err == nil && s.ok {
		b.held.drop(old)
		b.held.confirm(g, s.epoch, s.rev)
		b.held.forget(g.name, g.owner)
		return
	}
	b.held.remain(old)
	if s.err == nil || b.harmless(s.err) {
		b.held.cancel(g)
		return
	}
	b.leases.retire(g.lease)
	b.leases.retire(b.held.leaseOf(old))
}
