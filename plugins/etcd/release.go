package etcd

import (
	"cmp"
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
	"github.com/lockbench/lockbench/plugins/etcd/internal/txn"
)

// Release is one Txn, after a read when an earlier process got the lock. Keep
// takes a LeaseGrant and a Txn.
func (b *Backend) Release(ctx context.Context, r driver.Request) error {
	if r.Keep > 0 {
		return b.keep(ctx, r)
	}
	g, err := b.known(ctx, r)
	if err != nil {
		return err
	}
	s := b.releasing(r, g)
	b.txns.Submit(s)
	return b.finish(ctx, s)
}

// releasing prepares the release of g; its step is to be submitted.
func (b *Backend) releasing(r driver.Request, g *grant) *txn.Step {
	s := &txn.Step{Name: r.Name, In: g.generation, Twice: true, Req: &pb.TxnRequest{
		Compare: []*pb.Compare{txn.At(b.space.hold(g.name), g.rev)},
		Success: b.table.deleting(g),
		Failure: look(b.space, r.Name),
	}}
	s.Done = func() bool { return true } // a try before has done it
	s.OnAnswer = func() { b.table.deleted(g, s) }
	return s
}

// finishing is finish for a batch.
func (b *Backend) finishing(s *txn.Step) finish {
	return func(ctx context.Context) driver.Result { return driver.Result{Err: b.finish(ctx, s)} }
}

// finish waits for a step that was submitted, and returns its outcome.
func (b *Backend) finish(ctx context.Context, s *txn.Step) error {
	if err := b.txns.Wait(ctx, s); err != nil {
		return err
	}
	return b.outcome(ctx, s)
}

// outcome turns the answer to a Txn that compares an owner's key, and looks when
// it differs, into an error.
func (b *Backend) outcome(ctx context.Context, s *txn.Step) error {
	switch {
	case errors.Is(s.Err, cluster.ErrDataLost):
		return &driver.NotHeldError{}
	case s.Err != nil:
		return b.cluster.Wrap(s.Err)
	case s.OK:
		return nil
	}
	return &driver.NotHeldError{Holder: b.holder(ctx, seenIn(s.Generation, s.Ops))}
}

// Withdraw is one Txn, and one more when there was a grant; now and then it needs
// a lease for the tombstone first.
func (b *Backend) Withdraw(ctx context.Context, name, owner string) error {
	return b.withdraw(ctx, driver.Request{Name: name, Owner: owner}, false)
}

// withdraw puts a tombstone for the owner, whose acquire may still be on its way,
// and deletes whatever it has. A store without space takes no tombstone, but
// deletes: then the lock is free, and the error says that it may be taken once more.
func (b *Backend) withdraw(ctx context.Context, r driver.Request, again bool) error {
	l, err := b.leases.get(ctx, forTombstones)
	if err == nil {
		err = b.undo(ctx, r, txn.Put(b.space.tombstone(r.Name, r.Owner), nil, l.id))
	}
	switch {
	case cluster.OutOfSpace(err):
		return b.cluster.Wrap(cmp.Or(b.undo(ctx, r), rpctypes.ErrNoSpace))
	case l != nil && (cluster.Is(err, rpctypes.ErrLeaseNotFound) || errors.Is(err, cluster.ErrDataLost)) && !again:
		b.leases.retire(l)
		return b.withdraw(ctx, r, true)
	}
	return b.cluster.Wrap(err)
}

// undo deletes whatever the owner has, after it has done first. Its error is native.
func (b *Backend) undo(ctx context.Context, r driver.Request, first ...*pb.RequestOp) error {
	holds := b.space.hold(r.Name)
	s := &txn.Step{Name: r.Name, Size: maxRecord, Twice: true, Req: &pb.TxnRequest{Success: append([]*pb.RequestOp{
		txn.Range(&pb.RangeRequest{Key: []byte(holds), RangeEnd: txn.Beyond(holds), Limit: 1}),
		entries(b.space, r.Name, maxInherited),
	}, first...)}}
	known := ""
	if e := b.table.entryOf(r.Name, r.Owner); e != nil {
		known = e.id
		s.Req.Success = append(s.Req.Success, txn.Delete(b.space.entry(e.name, e.id)))
	}
	b.table.withdrawing(r.Name, r.Owner)
	last := s
	s.OnAnswer = func() {
		if rest := b.left(r, s, known, len(first) > 0); rest != nil {
			last = rest
			b.txns.Submit(rest)
			return
		}
		b.table.withdrawn(r.Name, r.Owner, s, len(first) > 0)
	}
	if err := b.txns.Do(ctx, s); err != nil {
		return err
	}
	if last != s {
		if err := b.txns.Wait(ctx, last); err != nil {
			return err
		}
	}
	return last.Err
}

// maxRecord is what a deleted key may have in the answer.
const maxRecord = 64 << 10

// left deletes what the owner turned out to have when s was done, beside the entry
// known: its lock, and the entry that it has had in an earlier process.
// It is nil when there is nothing.
func (b *Backend) left(r driver.Request, s *txn.Step, known string, final bool) *txn.Step {
	if s.Err != nil {
		return nil
	}
	d := &txn.Step{Name: r.Name, In: s.Generation, Twice: true, Req: &pb.TxnRequest{}}
	var rec record
	if kvs := s.Ops[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
		rec, _ = decodeRecord(kvs[0].Value)
		if rec.owner == r.Owner {
			d.Req.Compare = append(d.Req.Compare, txn.At(string(kvs[0].Key), kvs[0].CreateRevision))
			d.Req.Success = append(d.Req.Success, txn.Delete(string(kvs[0].Key)))
			if rec.entry != "" {
				d.Req.Success = append(d.Req.Success, txn.Delete(b.space.entry(r.Name, rec.entry)))
			}
		}
	}
	for _, kv := range s.Ops[1].GetResponseRange().GetKvs() {
		if _, _, id := b.space.parse(string(kv.Key)); ownerOf(kv) == r.Owner && id != known && id != rec.entry {
			d.Req.Success = append(d.Req.Success, txn.Delete(string(kv.Key)))
		}
	}
	if len(d.Req.Success) == 0 {
		return nil
	}
	d.OnAnswer = func() { b.table.withdrawn(r.Name, r.Owner, d, final) }
	return d
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
	if !b.table.beginRenewal(g, now) {
		return b.notHeld(ctx, r)
	}
	var deadline time.Time
	defer func() { b.table.endRenewal(g, deadline, 0) }()
	if b.table.left(g, now) <= r.Keep { // never lengthen it
		gone, _, err := b.table.verify(ctx, []*grant{g})
		if gone[g] {
			b.table.lost(g)
			return b.notHeld(ctx, r)
		}
		return err
	}
	seconds := (r.Keep + time.Second - 1).Truncate(time.Second)
	if b.table.isUnsure(g) {
		if err := b.relocate(ctx, g, r); err != nil {
			return err
		}
	}
	l, err := b.leases.grant(ctx, purpose{ttl: max(seconds, assumedTTLMin, b.leases.shortest())})
	if err != nil {
		return err
	}
	b.leases.retire(l) // what is on it must not be renewed
	s := b.moving(g, l)
	if g.entry != "" { // the next in the queue watches the lock itself from now on
		s.Req.Success[1] = txn.Delete(b.space.entry(g.name, g.entry))
	}
	if err := b.txns.Do(ctx, s); err != nil {
		return err
	}
	switch {
	case s.Err == nil && s.OK:
		deadline = now.Add(r.Keep)
	case s.Err == nil && b.isOn(g, s, nil):
		return errElsewhere
	}
	return b.outcome(ctx, s)
}

// known returns the grant that r names, read from the store if a process before
// this one got it.
func (b *Backend) known(ctx context.Context, r driver.Request) (*grant, error) {
	if g := b.table.find(r.Name, r.Owner, r.Token); g != nil {
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
