package etcd

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/txn"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// Inspect reads through the consensus, then asks for the TTL of the lease.
func (b *Backend) Inspect(ctx context.Context, name string) (driver.Holder, error) {
	v, err := b.readLock(ctx, name)
	if err != nil {
		return driver.Holder{}, err
	}
	return b.holder(ctx, v), nil
}

// holder describes who holds the lock, the zero Holder when nobody does.
func (b *Backend) holder(ctx context.Context, v lockState) driver.Holder {
	if v.first == nil {
		return driver.Holder{}
	}
	h := driver.Holder{
		Name: b.space.nameOf(string(v.first.Key)), Owner: ownerOf(v.first), Token: v.generation.Token(v.first.CreateRevision),
		Waiters: max(0, v.entries-1),
	}
	if rec, err := decodeRecord(v.first.Value); err == nil {
		h.Label, h.Value = rec.label, rec.value
	}
	if e := b.table.find(h.Name, h.Owner, h.Token); e != nil {
		h.TTL = max(time.Millisecond, kit.UpToMillis(b.table.left(e, time.Now())))
		return h
	}
	left, err := b.ttls.left(ctx, v.first.Lease)
	if err != nil {
		left = time.Second // held for an unknown time: ask again soon
	}
	h.TTL = left
	return h
}

// unreadable is the owner of a key that something else has put there.
const unreadable = "?"

// ownerOf reads who put an entry.
func ownerOf(kv *mvccpb.KeyValue) string {
	rec, err := decodeRecord(kv.Value)
	if err != nil || rec.owner == "" {
		return unreadable
	}
	return rec.owner
}

// entries reads the oldest entries of name: the first is the lock.
func entries(s space, name string, limit int64) *pb.RequestOp {
	all := s.entries(name)
	return txn.Range(&pb.RangeRequest{
		Key: []byte(all), RangeEnd: txn.Beyond(all), Limit: limit,
		SortOrder: pb.RangeRequest_ASCEND, SortTarget: pb.RangeRequest_CREATE,
	})
}

// probe is an acquire that never comes about: no key was created before the first
// revision. The servers check for it all that they check for a put, rights and
// space, and take it through the consensus, but nothing is written.
func probe(s space) *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: []*pb.Compare{txn.At(s.tombstones, -1)},
		Success: []*pb.RequestOp{txn.Put(s.tombstones, nil, 0), txn.Exists(s.names)},
	}
}

// lockState is what entries found first among what was read of a name.
type lockState struct {
	generation *txn.Generation  // in which it was read
	rev        int64            // of the store then; not set by lockStateIn
	first      *mvccpb.KeyValue // the lock; nil when nobody holds it
	entries    int              // with the first one
}

func lockStateIn(gen *txn.Generation, ops []*pb.ResponseOp) lockState {
	v := lockState{generation: gen}
	if len(ops) == 0 {
		return v
	}
	found := ops[0].GetResponseRange()
	if kvs := found.GetKvs(); len(kvs) > 0 {
		v.first = kvs[0]
	}
	v.entries = int(found.GetCount())
	return v
}

// readLock reads who holds name and who waits.
func (b *Backend) readLock(ctx context.Context, name string) (lockState, error) {
	resp, gen, err := b.txns.Read(ctx, entries(b.space, name, 1))
	if err != nil {
		return lockState{}, b.cluster.Wrap(err)
	}
	v := lockStateIn(gen, resp.Responses)
	v.rev = resp.Header.Revision
	return v, nil
}
