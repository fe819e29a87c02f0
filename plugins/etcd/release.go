package etcd

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockbench/lockbench/core/driver"
)

// Release is one Txn. Withdrawing is one too; now and then it needs a lease for
// the bars first. Keep takes a LeaseGrant and a Txn.
func (b *backend) Release(ctx context.Context, r driver.Request) error {
	switch {
	case r.Token == 0:
		return b.withdraw(ctx, r, false)
	case r.Keep > 0:
		return b.keep(ctx, r)
	}
	return b.one(ctx, driver.OpRelease, r).Err
}

// release is a release under way.
type release struct {
	b     *backend
	r     driver.Request
	grant *grant // nil when this process does not know it
	step  *step
	stray *step // what is left to delete, nil when nothing is
}

func (b *backend) releasing(r driver.Request, e *epoch) *release {
	rel := &release{b: b, r: r, grant: b.held.find(r.Name, r.Owner, r.Token)}
	key := b.space.hold(r.Name, r.Owner)
	rel.step = &step{name: r.Name, size: maxRecord, more: true, req: &pb.TxnRequest{
		Compare: []*pb.Compare{at(key, e.revision(r.Token))},
		Success: []*pb.RequestOp{take(key)},
		Failure: look(b.space, r.Name),
	}}
	if g := rel.grant; g != nil {
		rel.step.req.Success, rel.step.size, rel.step.more = b.held.depart(g), 0, false
	}
	rel.step.settle = rel.settle
	return rel
}

func (rel *release) settle() {
	if rel.grant != nil {
		rel.b.held.departed(rel.grant, rel.step)
		return
	}
	if rel.step.err == nil && rel.step.ok {
		rel.stray = rel.b.held.strayPlace(rel.r.Name, rel.step.ops[0], "")
	}
}

func (rel *release) finish(ctx context.Context) driver.Result {
	if err := rel.step.wait(ctx, rel.b); err != nil {
		return driver.Result{Err: err}
	}
	if rel.stray != nil {
		_ = rel.stray.wait(ctx, rel.b) // the lock is released; a place ends by itself
	}
	return driver.Result{Err: rel.b.outcome(ctx, rel.step)}
}

// outcome turns the answer to a Txn that compares an owner's key, and looks when
// it differs, into an error.
func (b *backend) outcome(ctx context.Context, s *step) error {
	switch {
	case errors.Is(s.err, errEpoch):
		return &driver.NotHeldError{}
	case s.err != nil:
		return b.wrap(s.err)
	case s.ok:
		return nil
	}
	return &driver.NotHeldError{Holder: b.holder(ctx, seenIn(s.ops))}
}

// withdraw deletes whatever the owner has, and bars it: its acquire may still be
// on its way.
func (b *backend) withdraw(ctx context.Context, r driver.Request, again bool) error {
	bars, err := b.barLease(ctx)
	if err != nil {
		return err
	}
	hold, own := b.space.hold(r.Name, r.Owner), b.space.place(r.Name, r.Owner)
	s := &step{name: r.Name, size: maxRecord, req: &pb.TxnRequest{Success: []*pb.RequestOp{
		take(hold), remove(own), put(b.space.bar(r.Name, r.Owner), nil, bars.id),
	}}}
	b.held.withdrawing(r.Name, r.Owner)
	var stray *step
	s.settle = func() {
		b.held.withdrawn(r.Name, r.Owner, s)
		if s.err == nil {
			stray = b.held.strayPlace(r.Name, s.ops[0], r.Owner)
		}
	}
	b.writer.submit(s)
	if err := s.wait(ctx, b); err != nil {
		return err
	}
	if (is(s.err, rpctypes.ErrLeaseNotFound) || errors.Is(s.err, errEpoch)) && !again {
		b.dropBarLease(bars)
		return b.withdraw(ctx, r, true)
	}
	if stray != nil {
		_ = stray.wait(ctx, b) // the lock is free; a place ends by itself
	}
	return b.wrap(s.err)
}

const (
	// barFor is how long a withdrawn owner is refused at least, barUse how long
	// bars are put on one lease, which is never renewed.
	barFor = time.Minute
	barUse = 10 * time.Second
	// maxBars bounds what the server deletes at once when such a lease ends.
	maxBars = 256
)

func (b *backend) barLease(ctx context.Context) (*lease, error) {
	b.mu.Lock()
	if l := b.bars; l != nil && b.barCount < maxBars && time.Since(l.acked) < barUse {
		b.barCount++
		b.mu.Unlock()
		return l, nil
	}
	b.mu.Unlock()
	l, err := b.leases.grant(ctx, barFor+barUse)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bars, b.barCount = l, 1
	return l, nil
}

func (b *backend) dropBarLease(l *lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bars == l {
		b.bars = nil
	}
}

// keep shortens a lease to r.Keep. The process deletes the key in time; should
// it end before, etcd does, whose leases are whole seconds and no shorter than
// its minimum.
func (b *backend) keep(ctx context.Context, r driver.Request) error {
	now := time.Now()
	g, err := b.known(ctx, r)
	if err != nil {
		return err
	}
	if !b.held.begin(g, now) {
		return b.notHeld(ctx, r)
	}
	var deadline time.Time
	defer func() { b.held.finish(g, deadline, 0) }()
	if b.held.left(g, now) <= r.Keep { // never lengthen it
		gone, _, err := b.held.verify(ctx, []*grant{g})
		if len(gone) > 0 {
			b.held.lost(g)
			return b.notHeld(ctx, r)
		}
		return err
	}
	seconds := (r.Keep + time.Second - 1).Truncate(time.Second)
	l, err := b.leases.grant(ctx, max(seconds, b.shortest()))
	if err != nil {
		return err
	}
	b.leases.retire(l) // what is on it must not be renewed
	s := b.moving(g, l)
	if g.place != "" { // the next in the queue watches the lock itself from now on
		s.req.Compare = s.req.Compare[:1]
		s.req.Success[1] = remove(b.space.place(g.name, g.place))
	}
	b.writer.submit(s)
	if err := s.wait(ctx, b); err != nil {
		return err
	}
	if s.err == nil && s.ok {
		deadline = now.Add(r.Keep)
	}
	return b.outcome(ctx, s)
}

// known returns the grant that r names, read from the store if a process before
// this one got it.
func (b *backend) known(ctx context.Context, r driver.Request) (*grant, error) {
	if g := b.held.find(r.Name, r.Owner, r.Token); g != nil {
		return g, nil
	}
	return b.adopt(ctx, r)
}

// notHeld is the answer when a lease is known to be over.
func (b *backend) notHeld(ctx context.Context, r driver.Request) error {
	h, err := b.Inspect(ctx, r.Name)
	if err != nil && !errors.Is(err, driver.ErrUnavailable) {
		return err
	}
	if h.Owner == r.Owner {
		h = driver.Holder{} // its delete is on its way
	}
	return &driver.NotHeldError{Holder: h}
}
