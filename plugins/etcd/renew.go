package etcd

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
	"github.com/lockbench/lockbench/plugins/etcd/internal/keepalive"
	"github.com/lockbench/lockbench/plugins/etcd/internal/txn"
)

// Renew is a keepalive and, at the same time, a read of the key: a keepalive
// alone would succeed for a key that Break has deleted. A lock whose lease is
// retired, of another TTL, or of an earlier process is moved to another lease
// instead, by one Txn.
func (b *Backend) Renew(ctx context.Context, r driver.Request) error {
	return b.one(ctx, driver.OpRenew, r).Err
}

// renewal is one renewal of a batch.
type renewal struct {
	r     driver.Request
	grant *grant
	err   *error

	// Of one that moves its lock to another lease.
	lease     *lease
	step      *txn.Step
	keepalive *keepalive.Keepalive
}

// renew does all of them together.
func (b *Backend) renew(ctx context.Context, all []*renewal, now time.Time) {
	var staying, moving []*renewal
	for _, re := range all {
		if *re.err = b.checkTTL(re.r.TTL); *re.err != nil {
			continue
		}
		re.grant = b.table.find(re.r.Name, re.r.Owner, re.r.Token)
		switch {
		case re.grant == nil:
			moving = append(moving, re)
		case !b.table.beginRenewal(re.grant, now):
			*re.err = b.notHeld(ctx, re.r)
		case b.leases.renewable(b.table.leaseOf(re.grant), re.r.TTL):
			staying = append(staying, re)
		default:
			moving = append(moving, re)
		}
	}
	moving = append(moving, b.stay(ctx, staying, now)...)
	b.move(ctx, moving, now)
}

// stay renews locks by a keepalive of their leases, and returns those whose
// lease turned out to be no longer good for that.
func (b *Backend) stay(ctx context.Context, all []*renewal, now time.Time) (moving []*renewal) {
	if len(all) == 0 {
		return nil
	}
	keepalives := map[*lease]*keepalive.Keepalive{}
	grants := make([]*grant, len(all))
	for i, re := range all {
		grants[i] = re.grant
		if l := b.table.leaseOf(re.grant); keepalives[l] == nil {
			keepalives[l] = b.leases.keepalive(l, now)
		}
	}
	gone, rev, err := b.table.verify(ctx, grants)
	for _, re := range all {
		l := b.table.leaseOf(re.grant)
		unanswered := b.leases.await(ctx, l, keepalives[l])
		var deadline time.Time
		switch {
		case err == nil && gone[re.grant]:
			b.table.lost(re.grant)
			*re.err = b.notHeld(ctx, re.r)
		case err == nil && errors.Is(unanswered, keepalive.ErrGone):
			moving = append(moving, re)
			continue
		case err != nil || unanswered != nil:
			*re.err = cmp.Or(err, unanswered)
		default:
			deadline = now.Add(re.r.TTL)
		}
		b.table.endRenewal(re.grant, deadline, rev)
	}
	return moving
}

// move renews locks by moving them to the present lease for their TTL.
func (b *Backend) move(ctx context.Context, all []*renewal, now time.Time) {
	b.adoptAll(ctx, all, now)
	var steps []*txn.Step
	var refused error // by a store without space
	for _, re := range all {
		if *re.err != nil {
			continue
		}
		l, err := (*lease)(nil), refused
		if err == nil {
			l, err = b.leases.get(ctx, purpose{ttl: re.r.TTL})
		}
		if err != nil {
			if *re.err = err; cluster.Is(err, rpctypes.ErrNoSpace) {
				refused = err
			}
			b.table.endRenewal(re.grant, time.Time{}, 0)
			continue
		}
		re.lease, re.step, re.keepalive = l, b.moving(re.grant, l), b.leases.keepalive(l, now)
		steps = append(steps, re.step)
	}
	b.txns.Submit(steps...)
	for _, re := range all {
		if re.step != nil {
			*re.err = b.arrive(ctx, re, now)
		}
	}
	b.linger(ctx, all, now)
}

// linger renews the locks that a store without space has refused to move where
// they are, because a keepalive is no write. What else is on their leases lives
// on too, and is looked after when they can be moved.
func (b *Backend) linger(ctx context.Context, all []*renewal, now time.Time) {
	var staying []*renewal
	for _, re := range all {
		if cluster.Is(*re.err, rpctypes.ErrNoSpace) && re.grant != nil && b.table.leaseOf(re.grant).ttl >= re.r.TTL && b.table.beginRenewal(re.grant, now) {
			*re.err = nil
			staying = append(staying, re)
		}
	}
	for _, re := range b.stay(ctx, staying, now) {
		b.table.endRenewal(re.grant, time.Time{}, 0)
		*re.err = b.notHeld(ctx, re.r)
	}
}

// moving puts g on l, and the queue entry that came with it, if that is still there.
func (b *Backend) moving(g *grant, l *lease) *txn.Step {
	key, from := b.space.hold(g.name), b.table.leaseOf(g)
	s := &txn.Step{Name: g.name, In: g.generation, Req: &pb.TxnRequest{
		Compare: []*pb.Compare{txn.At(key, g.rev)},
		Success: []*pb.RequestOp{txn.Move(key, l.id)},
		Failure: look(b.space, g.name),
	}}
	if g.entry != "" {
		own := b.space.entry(g.name, g.entry)
		s.Req.Success = append(s.Req.Success, txn.When(txn.Present(own), txn.Move(own, l.id)))
	}
	s.OnAnswer = func() {
		switch {
		case s.Err == nil && s.OK:
			b.table.moved(g, l)
			return
		case s.Err != nil && !b.cluster.Harmless(s.Err): // it may be on either
			b.leases.retire(l)
			b.leases.retire(from)
		}
		b.leases.unload(l)
	}
	return s
}

// arrive waits for a move and ends the renewal.
func (b *Backend) arrive(ctx context.Context, re *renewal, now time.Time) (err error) {
	var deadline time.Time
	defer func() { b.table.endRenewal(re.grant, deadline, re.step.Rev) }()
	if err := b.txns.Wait(ctx, re.step); err != nil {
		return err
	}
	switch s := re.step; {
	case cluster.Is(s.Err, rpctypes.ErrLeaseNotFound):
		b.leases.retire(re.lease)
		return b.cluster.Untouched(s.Err)
	case s.Err != nil:
		return b.outcome(ctx, s)
	case !s.OK:
		b.table.lost(re.grant)
		return b.outcome(ctx, s)
	}
	if err := b.leases.await(ctx, re.lease, re.keepalive); err != nil {
		return b.cluster.Wrap(err)
	}
	deadline = now.Add(re.r.TTL)
	return nil
}

// adoptAll finds the grants of locks that this process does not know: all that
// its host holds, after a restart.
func (b *Backend) adoptAll(ctx context.Context, all []*renewal, now time.Time) {
	var group sync.WaitGroup
	slots := make(chan struct{}, maxAdoptions)
	for _, re := range all {
		if re.grant != nil {
			continue
		}
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			g, err := b.adopt(ctx, re.r)
			switch {
			case err != nil:
				*re.err = err
			case !b.table.beginRenewal(g, now):
				*re.err = b.notHeld(ctx, re.r)
			default:
				re.grant = g
			}
		})
	}
	group.Wait()
}

// maxAdoptions is how many locks are read at a time after a restart.
const maxAdoptions = 16

// adopt takes over a lock that an earlier process of this host got. Its lease
// is retired from the start: who knows what else is on it.
func (b *Backend) adopt(ctx context.Context, r driver.Request) (*grant, error) {
	v, err := b.look(ctx, r.Name)
	if err != nil {
		return nil, err
	}
	if v.hold == nil || v.generation.Token(v.hold.CreateRevision) != r.Token || ownerOf(v.hold) != r.Owner {
		return nil, &driver.NotHeldError{Holder: b.holder(ctx, v)}
	}
	var left expiry
	if v.hold.Lease != 0 {
		if left, err = b.ttls.of(ctx, v.hold.Lease, false); err != nil {
			return nil, err
		}
	}
	rec, err := decodeRecord(v.hold.Value)
	if err != nil {
		return nil, err
	}
	g := &grant{
		name: r.Name, owner: r.Owner, label: rec.label, entry: rec.entry, token: r.Token, rev: v.hold.CreateRevision, generation: v.generation,
		seenAt: v.rev, since: time.Now(), deadline: left.at.Add(time.Second),
		lease: &lease{id: v.hold.Lease, purpose: purpose{ttl: left.granted}, acked: left.at.Add(-left.granted), retired: true},
	}
	return b.table.adopt(g), nil
}
