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

// Release sends one Txn. If an earlier process acquired the lock, Release first reads the lock. If
// r.Keep is set, the lock ends after r.Keep, or earlier at its deadline; see the method keep.
func (b *Backend) Release(ctx context.Context, r driver.Request) error {
	if r.Keep > 0 {
		return b.keep(ctx, r)
	}
	e, err := b.known(ctx, r)
	if err != nil {
		return err
	}
	s := b.releasing(e)
	b.txns.Submit(s)
	return b.finish(ctx, s)
}

func (b *Backend) releasing(e *entry) *txn.Step {
	b.table.mu.Lock()
	e.ending = true // so that e is not renewed
	b.table.mu.Unlock()
	s := b.table.change(e, txn.Delete(e.key))
	s.Repeatable = true
	s.Done = func() bool { return s.Doubt != nil } // an earlier try has done it
	s.OnAnswer = func() { b.table.ended(e, s.Err) }
	return s
}

// finish waits for the outcome of the step s, which table.change has made.
func (b *Backend) finish(ctx context.Context, s *txn.Step) error {
	err := b.txns.Wait(ctx, s)
	switch {
	case err != nil:
		return err
	case errors.Is(s.Err, cluster.ErrDataLost):
		return &driver.NotHeldError{}
	case s.Err != nil:
		return b.cluster.Wrap(s.Err)
	case s.OK:
		return nil
	}
	return &driver.NotHeldError{Holder: b.holder(ctx, lockStateIn(s.Found))}
}

// Withdraw sends one Txn. If more entries of owner may be left, a second Txn deletes them. If no
// etcd lease for tombstones (see withdraw) is in use, Withdraw first makes one. If ctx ends before
// the withdrawal, the withdrawal goes on, at most for the request timeout.
func (b *Backend) Withdraw(ctx context.Context, name, owner string) error {
	if ctx.Err() != nil {
		return b.cluster.Untouched(ctx.Err())
	}
	done := make(chan error, 1)
	b.cluster.Apart(func() {
		limited, cancel := context.WithTimeout(b.cluster.Context(), b.cluster.RequestTimeout())
		defer cancel()
		done <- b.table.withdraw(limited, name, owner, false)
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return b.cluster.Wrap(ctx.Err())
	}
}

// withdraw deletes the owner's entries. It also puts a tombstone, a key that makes the store refuse
// a late acquire by the owner. A store without space accepts only the deletes. withdraw then
// returns an error, because a late acquire by the owner may take the lock.
func (t *table) withdraw(ctx context.Context, name, owner string, again bool) error {
	l, err := t.leases.get(ctx, forTombstones)
	if err == nil {
		err = t.undo(ctx, name, owner, txn.Put(t.space.tombstone(name, owner), nil, l.id))
	}
	switch {
	case cluster.OutOfSpace(err):
		return t.cluster.Wrap(cmp.Or(t.undo(ctx, name, owner), rpctypes.ErrNoSpace))
	case l != nil && (cluster.Is(err, rpctypes.ErrLeaseNotFound) || errors.Is(err, cluster.ErrDataLost)) && !again:
		l.retired.Store(true)
		return t.withdraw(ctx, name, owner, true)
	}
	return t.cluster.Wrap(err)
}

const (
	// maxFound is the largest number of entries that a withdrawal reads to find the owner's entries.
	// maxRecord is the largest size, in bytes, of a published value in the answer to this read.
	maxFound  = 100
	maxRecord = 64 << 10
)

// undo sends a Txn that does the operations in the parameter first, and deletes the owner's entry
// that this process knows. A second Txn deletes the owner's other entries. Errors are not wrapped.
func (t *table) undo(ctx context.Context, name, owner string, first ...*pb.RequestOp) error {
	s := &txn.Step{Name: name, Size: 2 * maxRecord, Repeatable: true, Req: &pb.TxnRequest{
		Success: append([]*pb.RequestOp{entries(t.space, name, maxFound)}, first...),
	}}
	t.mu.Lock()
	known := t.entries[entryKey{name, owner}] // nil if this process knows none
	put := known != nil && known.rev != 0     // this process knows that the key was created
	if known != nil {
		known.ending = true
	}
	t.mu.Unlock()
	switch {
	case put:
		s.In, s.Req.Success = known.generation, append(s.Req.Success, txn.When(txn.At(known.key, known.rev), txn.Delete(known.key)))
	case known != nil && known.key != t.space.free(name): // its put may fail, and another owner of this process use the key
		s.Req.Success = append(s.Req.Success, txn.When(txn.HasValue(known.key, known.value), txn.Delete(known.key)))
	}
	err := t.txns.Run(ctx, s)
	var rest []*pb.RequestOp
	if err == nil {
		for _, kv := range s.Ops[0].GetResponseRange().GetKvs() {
			if recordOf(kv).owner == owner && (!put || !known.is(kv, s.Generation)) {
				rest = append(rest, txn.When(txn.At(string(kv.Key), kv.CreateRevision), txn.Delete(string(kv.Key))))
			}
		}
	}
	if len(rest) > 0 {
		err = t.txns.Run(ctx, &txn.Step{Name: name, In: s.Generation, Repeatable: true, Req: &pb.TxnRequest{Success: rest}})
	}
	switch {
	case known == nil:
	case err == nil && len(first) == 0 && !put: // without a tombstone, the put may still arrive
		t.ended(known, rpctypes.ErrNoSpace)
	default:
		t.ended(known, err)
	}
	return err
}

// The method keep makes this process delete the lock after r.Keep. Because this process may end
// first, keep also renews the lock for r.Keep, rounded up to whole seconds, and for at least
// leases.shortest(). If the lock ends within r.Keep anyway, keep only checks that its entry exists.
func (b *Backend) keep(ctx context.Context, r driver.Request) error {
	now := time.Now()
	e, err := b.known(ctx, r)
	if err != nil {
		return err
	}
	if b.table.snapshot(e).deadline.Sub(now) <= r.Keep { // never lengthen it
		gone, err := b.table.verify(ctx, []*entry{e})
		if gone[e] {
			b.table.drop(e)
			return b.notHeld(ctx, r)
		}
		return err
	}
	r.TTL = max((r.Keep + time.Second - 1).Truncate(time.Second), b.leases.shortest())
	if b.renew(ctx, []*renewal{{r: r, err: &err}}, now); err != nil {
		return err
	}
	b.table.until(e, now.Add(r.Keep))
	return nil
}

// known returns this process's entry for a lock. It adopts a lock that an earlier process acquired.
func (b *Backend) known(ctx context.Context, r driver.Request) (*entry, error) {
	if e := b.table.find(r.Name, r.Owner, r.Token); e != nil {
		return e, nil
	}
	return b.adopt(ctx, r)
}

func (b *Backend) notHeld(ctx context.Context, r driver.Request) error {
	h, err := b.Inspect(ctx, r.Name)
	if err != nil && !errors.Is(err, driver.ErrUnavailable) {
		return err
	}
	if h.Owner == r.Owner {
		h = driver.Holder{} // its delete is under way
	}
	return &driver.NotHeldError{Holder: h}
}
