package etcd

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockbench/lockbench/core/driver"
)

// Release is one Txn, after a read when an earlier process got the lock.
// Withdrawing is one, and one more when there was a grant; now and then it needs
// a lease for the bars first. Keep takes a LeaseGrant and a Txn.
func (b *Backend) Release(ctx context.Context, r driver.Request) error {
	switch {
	case r.Token == 0:
		return b.withdraw(ctx, r, false)
	case r.Keep > 0:
		return b.keep(ctx, r)
	}
	g, err := b.known(ctx, r)
	if err != nil {
		return err
	}
	rel := b.releasing(r, g)
	b.writer.submit(rel.step)
	return rel.finish(ctx).Err
}

// release is a release under way.
type release struct {
	b     *Backend
	grant *grant
	step  *step
}

func (b *Backend) releasing(r driver.Request, g *grant) *release {
	rel := &release{b: b, grant: g}
	rel.step = &step{name: r.Name, in: g.epoch, twice: true, req: &pb.TxnRequest{
		Compare: []*pb.Compare{at(b.space.hold(g.name), g.rev)},
		Success: b.held.depart(g),
		Failure: look(b.space, r.Name),
	}}
	rel.step.settle = func() {
		if s := rel.step; s.err == nil && s.doubt != nil {
			s.ok = true // a try before has done it
		}
		b.held.departed(g, rel.step)
	}
	return rel
}

func (rel *release) finish(ctx context.Context) driver.Result {
	if err := rel.step.wait(ctx, rel.b); err != nil {
		return driver.Result{Err: err}
	}
	return driver.Result{Err: rel.b.outcome(ctx, rel.step)}
}

// outcome turns the answer to a Txn that compares an owner's key, and looks when
// it differs, into an error.
func (b *Backend) outcome(ctx context.Context, s *step) error {
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

// withdraw bars the owner, whose acquire may still be on its way, and then
// deletes whatever it has.
func (b *Backend) withdraw(ctx context.Context, r driver.Request, again bool) error {
	bars, err := b.barLease(ctx)
	if err != nil {
		return err
	}
	holds := b.space.hold(r.Name)
	s := &step{name: r.Name, size: maxRecord, twice: true, req: &pb.TxnRequest{Success: []*pb.RequestOp{
		read(&pb.RangeRequest{Key: []byte(holds), RangeEnd: beyond(holds), Limit: 1}),
		places(b.space, r.Name, maxHeirs),
		put(b.space.bar(r.Name, r.Owner), nil, bars.id),
	}}}
	known := ""
	if p := b.held.placeOf(r.Name, r.Owner); p != nil {
		known = p.id
		s.req.Success = append(s.req.Success, remove(b.space.place(p.name, p.id)))
	}
	b.held.withdrawing(r.Name, r.Owner)
	last := s
	s.settle = func() {
		if rest := b.left(r, s, known); rest != nil {
			last = rest
			b.writer.submit(rest)
			return
		}
		b.held.withdrawn(r.Name, r.Owner, s)
	}
	b.writer.submit(s)
	if err := s.wait(ctx, b); err != nil {
		return err
	}
	if last != s {
		if err := last.wait(ctx, b); err != nil {
			return err
		}
	}
	if (is(last.err, rpctypes.ErrLeaseNotFound) || errors.Is(last.err, errEpoch)) && !again {
		b.dropBarLease(bars)
		return b.withdraw(ctx, r, true)
	}
	return b.wrap(last.err)
}

// left deletes what the owner turned out to have when it was barred by s, beside
// the place known: its lock, and the place that it has had in an earlier process.
// It is nil when there is nothing.
func (b *Backend) left(r driver.Request, s *step, known string) *step {
	if s.err != nil {
		return nil
	}
	d := &step{name: r.Name, in: s.epoch, twice: true, req: &pb.TxnRequest{}}
	var rec record
	if kvs := s.ops[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
		rec, _ = decodeRecord(kvs[0].Value)
		if rec.owner == r.Owner {
			d.req.Compare = append(d.req.Compare, at(string(kvs[0].Key), kvs[0].CreateRevision))
			d.req.Success = append(d.req.Success, remove(string(kvs[0].Key)))
			if rec.place != "" {
				d.req.Success = append(d.req.Success, remove(b.space.place(r.Name, rec.place)))
			}
		}
	}
	for _, kv := range s.ops[1].GetResponseRange().GetKvs() {
		if _, _, id := b.space.parse(string(kv.Key)); ownerOf(kv) == r.Owner && id != known && id != rec.place {
			d.req.Success = append(d.req.Success, remove(string(kv.Key)))
		}
	}
	if len(d.req.Success) == 0 {
		return nil
	}
	d.settle = func() { b.held.withdrawn(r.Name, r.Owner, d) }
	return d
}

const (
	// barFor is how long a withdrawn owner is refused at least, barUse how long
	// bars are put on one lease, which is never renewed.
	barFor = time.Minute
	barUse = 10 * time.Second
	// maxBars bounds what the server deletes at once when such a lease ends.
	maxBars = 256
)

func (b *Backend) barLease(ctx context.Context) (*lease, error) {
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

func (b *Backend) dropBarLease(l *lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bars == l {
		b.bars = nil
	}
}

// keep shortens a lease to r.Keep. The process deletes the key in time; should
// it end before, etcd does, whose leases are whole seconds and no shorter than
// its minimum.
func (b *Backend) keep(ctx context.Context, r driver.Request) error {
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
func (b *Backend) known(ctx context.Context, r driver.Request) (*grant, error) {
	if g := b.held.find(r.Name, r.Owner, r.Token); g != nil {
		return g, nil
	}
	return b.adopt(ctx, r)
}

// notHeld is the answer when a lease is known to be over.
func (b *Backend) notHeld(ctx context.Context, r driver.Request) error {
	h, err := b.Inspect(ctx, r.Name)
	if err != nil && !errors.Is(err, driver.ErrUnavailable) {
		return err
	}
	if h.Owner == r.Owner {
		h = driver.Holder{} // its delete is on its way
	}
	return &driver.NotHeldError{Holder: h}
}
