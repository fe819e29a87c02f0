package etcd

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/txn"
	"github.com/lockbench/lockbench/plugins/internal/millis"
)

// Inspect reads through the consensus, then asks for the TTL of the lease.
func (b *Backend) Inspect(ctx context.Context, name string) (driver.Holder, error) {
	v, err := b.look(ctx, name)
	if err != nil {
		return driver.Holder{}, err
	}
	return b.holder(ctx, v), nil
}

// holder describes who holds the lock, the zero Holder when nobody does.
func (b *Backend) holder(ctx context.Context, v seen) driver.Holder {
	if v.hold == nil {
		return driver.Holder{}
	}
	name, _, _ := b.space.parse(string(v.hold.Key))
	h := driver.Holder{Name: name, Owner: ownerOf(v.hold), Token: v.generation.Token(v.hold.CreateRevision), Waiters: v.queued}
	if rec, err := decodeRecord(v.hold.Value); err == nil {
		h.Label, h.Value = rec.label, rec.value
		if rec.entry != "" && h.Waiters > 0 {
			h.Waiters-- // the entry of the holder itself
		}
	}
	if g := b.table.find(name, h.Owner, h.Token); g != nil {
		h.TTL = max(time.Millisecond, millis.Up(b.table.left(g, time.Now())))
		return h
	}
	left, err := b.ttls.left(ctx, v.hold.Lease, v.approximateTTL)
	if err != nil {
		left = time.Second // held for an unknown time: ask again soon
	}
	h.TTL = left
	return h
}

// unreadable is the owner of a key that something else has put there.
const unreadable = "?"

// ownerOf reads who put a lease's key.
func ownerOf(kv *mvccpb.KeyValue) string {
	rec, err := decodeRecord(kv.Value)
	if err != nil || rec.owner == "" {
		return unreadable
	}
	return rec.owner
}

// look reads who holds name and who waits: two operations, which [seenIn] takes
// apart. The oldest queue entry comes with its value.
func look(s space, name string) []*pb.RequestOp {
	holds := s.hold(name)
	return []*pb.RequestOp{txn.Range(&pb.RangeRequest{Key: []byte(holds), RangeEnd: txn.Beyond(holds), Limit: 1}), entries(s, name, 1)}
}

// entries reads the oldest queue entries of name.
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

// seen is what look found.
type seen struct {
	generation     *txn.Generation  // in which it was read
	rev            int64            // of the store then; not set by seenIn
	hold           *mvccpb.KeyValue // nil when nobody holds the lock
	head           *mvccpb.KeyValue // the oldest queue entry, nil when there is none
	queued         int              // entries
	approximateTTL bool             // how long the lock is held need not be known exactly
}

func seenIn(gen *txn.Generation, ops []*pb.ResponseOp) seen {
	v := seen{generation: gen}
	if kvs := ops[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
		v.hold = kvs[0]
	}
	queue := ops[1].GetResponseRange()
	if kvs := queue.GetKvs(); len(kvs) > 0 {
		v.head = kvs[0]
	}
	v.queued = int(queue.GetCount())
	return v
}

// look reads who holds name and who waits.
func (b *Backend) look(ctx context.Context, name string) (seen, error) {
	resp, gen, err := b.txns.Read(ctx, look(b.space, name)...)
	if err != nil {
		return seen{}, b.cluster.Wrap(err)
	}
	v := seenIn(gen, resp.Responses)
	v.rev = resp.Header.Revision
	return v, nil
}
