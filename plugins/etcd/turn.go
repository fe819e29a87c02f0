package etcd

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/lockbench/lockbench/core/driver"
)

// placeFor is how long a place outlives its last Wait or TryAcquire, and so how
// long a free lock is kept for a waiter that was woken and does not come.
const placeFor = 2 * time.Second

// placeBeat is how often the lease of places is renewed while a Wait lasts.
const placeBeat = placeFor / 4

// placeLease is the TTL of places, more than placeFor: a leader that stood still
// may revoke, when it goes on, what has ended by its own books
// (etcd-io/etcd#15247), and so would end the whole queue. The place of a process
// that is silent for placeFor is taken away by who waits behind it, see evict.
const placeLease = 10 * time.Second

// placeTTL is placeLease, or what the server grants at least.
func (b *Backend) placeTTL() time.Duration { return max(placeLease, b.shortest()) }

// evict takes away the place for which a free lock is kept, if its process has
// not renewed its lease for placeFor. It reports whether it did.
func (b *Backend) evict(ctx context.Context, head *mvccpb.KeyValue, e *epoch) bool {
	if head.Lease == 0 {
		return false
	}
	life, err := b.ttls.of(ctx, head.Lease, false)
	if err != nil || life.silent() < placeFor {
		return false
	}
	key := string(head.Key)
	name, _, _ := b.space.parse(key)
	holds := b.space.hold(name)
	s := &step{name: name, in: e, req: &pb.TxnRequest{
		Compare: []*pb.Compare{absent(holds, beyond(holds)), at(key, head.CreateRevision)},
		Success: []*pb.RequestOp{remove(key)},
	}}
	b.writer.submit(s)
	return s.wait(ctx, b) == nil && s.err == nil && s.ok
}

// silent is for how long, at least, the lease has not been renewed.
func (e expiry) silent() time.Duration {
	return e.granted - e.at.Sub(e.asked) - time.Second // what is left was rounded down
}

// reserved describes a free lock that a waiter's turn keeps from others.
func (b *Backend) reserved(v seen) driver.Holder {
	name, _, _ := b.space.parse(string(v.head.Key))
	h := driver.Holder{Name: name, Owner: ownerOf(v.head), TTL: placeFor, Waiters: v.places}
	if rec, err := decodeRecord(v.head.Value); err == nil {
		h.Label = rec.label
	}
	return h
}
