package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
		case !b.table.isUnsure(re.grant) && b.leases.renewable(b.table.leaseOf(re.grant), re.r.TTL):
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

// move renews locks by moving them to the present lease for their TTL, in a second
// try those that were not where they were thought to be.
func (b *Backend) move(ctx context.Context, all []*renewal, now time.Time) {
	b.moveOnce(ctx, all, now)
	var elsewhere []*renewal
	for _, re := range all {
		if errors.Is(*re.err, errElsewhere) && b.table.beginRenewal(re.grant, now) {
			*re.err, re.step = nil, nil
			elsewhere = append(elsewhere, re)
		}
	}
	if len(elsewhere) > 0 {
		b.moveOnce(ctx, elsewhere, now)
	}
	b.linger(ctx, all, now)
}

func (b *Backend) moveOnce(ctx context.Context, all []*renewal, now time.Time) {
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
			if *re.err = err; cluster.OutOfSpace(err) {
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
}

// linger renews the locks that a store without space has refused to move where
// they are, because a keepalive is no write. What else is on their leases lives
// on too, and is looked after when they can be moved. A lock that may be on another
// lease is not one of them: its keepalive would say nothing.
func (b *Backend) linger(ctx context.Context, all []*renewal, now time.Time) {
	var staying []*renewal
	for _, re := range all {
		if b.mayLinger(re) && b.table.beginRenewal(re.grant, now) {
			*re.err = nil
			staying = append(staying, re)
		}
	}
	for _, re := range b.stay(ctx, staying, now) {
		b.table.endRenewal(re.grant, time.Time{}, 0)
		*re.err = b.notHeld(ctx, re.r)
	}
}

// mayLinger reports whether the store had no space to move a lock, which has stayed
// on a lease that is long enough.
func (b *Backend) mayLinger(re *renewal) bool {
	return cluster.OutOfSpace(*re.err) && b.cluster.Harmless(*re.err) &&
		re.grant != nil && !b.table.isUnsure(re.grant) && b.table.leaseOf(re.grant).ttl >= re.r.TTL
}

// moving puts g on l, and the queue entry that came with it, if that is still there.
// It moves g from where it is now only: a move that is late must not bring it back
// to a lease that was given up.
func (b *Backend) moving(g *grant, l *lease) *txn.Step {
	key, from := b.space.hold(g.name), b.table.leaseOf(g)
	s := &txn.Step{Name: g.name, In: g.generation, Req: &pb.TxnRequest{
		Compare: []*pb.Compare{txn.At(key, g.rev), txn.On(key, from.id)},
		Success: []*pb.RequestOp{txn.Move(key, l.id)},
		Failure: look(b.space, g.name),
	}}
	if g.entry != "" {
		own := b.space.entry(g.name, g.entry)
		s.Req.Success = append(s.Req.Success, txn.When(txn.Present(own), txn.Move(own, l.id)))
	}
	s.Done = func() bool { return b.isOn(g, s, l) }
	s.OnAnswer = func() {
		switch {
		case s.Err == nil && s.OK:
			b.table.moved(g, l)
			return
		case s.Err == nil && b.isOn(g, s, nil) && !b.isOn(g, s, b.table.leaseOf(g)):
			b.table.unsure(g)
		case s.Err != nil && !b.cluster.Harmless(s.Err): // it may be on either
			b.table.unsure(g)
			b.leases.retire(l)
			b.leases.retire(from)
		}
		b.leases.unload(l)
	}
	return s
}

// isOn reports whether s, which was refused, has seen g's key, on l unless that is nil.
func (b *Backend) isOn(g *grant, s *txn.Step, l *lease) bool {
	kv := seenIn(s.Generation, s.Ops).hold
	return kv != nil && kv.CreateRevision == g.rev && s.Generation.Same(g.generation) && (l == nil || kv.Lease == l.id)
}

// errElsewhere: a lock was not moved, because its key was on another lease than
// this process knew.
var errElsewhere = fmt.Errorf("etcd: %w: the lock was moved to another lease meanwhile", driver.ErrUnavailable)

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
	case !s.OK && b.isOn(re.grant, s, nil):
		return errElsewhere
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
// its host holds, after a restart, and the leases of those whose lease it may not know.
func (b *Backend) adoptAll(ctx context.Context, all []*renewal, now time.Time) {
	var group sync.WaitGroup
	slots := make(chan struct{}, maxAdoptions)
	for _, re := range all {
		if re.grant != nil && !b.table.isUnsure(re.grant) {
			continue
		}
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if re.grant != nil {
				if *re.err = b.relocate(ctx, re.grant, re.r); *re.err != nil {
					b.table.endRenewal(re.grant, time.Time{}, 0)
				}
				return
			}
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

// relocate finds the lease that g's key is on.
func (b *Backend) relocate(ctx context.Context, g *grant, r driver.Request) error {
	found, err := b.find(ctx, r)
	switch {
	case err == nil:
		b.table.relocated(g, found.lease)
	case errors.Is(err, driver.ErrNotHeld):
		b.table.lost(g)
	}
	return err
}

// maxAdoptions is how many locks are read at a time after a restart.
const maxAdoptions = 16

// adopt takes over a lock that an earlier process of this host got.
func (b *Backend) adopt(ctx context.Context, r driver.Request) (*grant, error) {
	g, err := b.find(ctx, r)
	if err != nil {
		return nil, err
	}
	return b.table.adopt(g), nil
}

// find reads the grant that r names. Its lease is retired from the start: who
// knows what else is on it.
func (b *Backend) find(ctx context.Context, r driver.Request) (*grant, error) {
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
	return &grant{
		name: r.Name, owner: r.Owner, label: rec.label, entry: rec.entry, token: r.Token, rev: v.hold.CreateRevision, generation: v.generation,
		seenAt: v.rev, since: time.Now(), deadline: left.at.Add(time.Second),
		lease: &lease{id: v.hold.Lease, purpose: purpose{ttl: left.granted}, acked: left.at.Add(-left.granted), retired: true},
	}, nil
}
