package etcd

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/txn"
)

// entryFor is how long a queue entry outlives its last Wait or TryAcquire, and so
// how long a free lock is reserved for a waiter that was woken and does not come.
const entryFor = 2 * time.Second

// entryRenewal is how often the lease of entries is renewed while a Wait lasts.
const entryRenewal = entryFor / 4

// entryLease is the TTL of entries, more than entryFor: a leader that stalled
// may revoke, when it goes on, what has ended by its own books
// (etcd-io/etcd#15247), and so would end the whole queue. The entry of a process
// that is silent for entryFor is taken away by who waits behind it, see evict.
const entryLease = 10 * time.Second

// forEntries is the purpose of a lease for entries, with entryLease or what the server
// grants at least.
func (t *table) forEntries() purpose { return purpose{ttl: max(entryLease, t.leases.shortest())} }

// evict takes away the entry for which a free lock is reserved, if its process has
// not renewed its lease for entryFor. It reports whether it did.
func (b *Backend) evict(ctx context.Context, v seen) bool {
	head := v.head
	if head.Lease == 0 {
		return false
	}
	left, err := b.ttls.of(ctx, head.Lease, false)
	if err != nil || left.silent() < entryFor {
		return false
	}
	key := string(head.Key)
	name, _, _ := b.space.parse(key)
	holds := b.space.hold(name)
	s := &txn.Step{Name: name, In: v.generation, Req: &pb.TxnRequest{
		Compare: []*pb.Compare{txn.NoneUnder(holds), txn.At(key, head.CreateRevision)},
		Success: []*pb.RequestOp{txn.Delete(key)},
	}}
	return b.txns.Do(ctx, s) == nil && s.Err == nil && s.OK
}

// reservation describes a free lock that is reserved for a waiter.
func (b *Backend) reservation(v seen) driver.Holder {
	name, _, _ := b.space.parse(string(v.head.Key))
	h := driver.Holder{Name: name, Owner: ownerOf(v.head), TTL: entryFor, Waiters: v.queued}
	if rec, err := decodeRecord(v.head.Value); err == nil {
		h.Label = rec.label
	}
	return h
}
