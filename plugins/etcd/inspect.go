package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/lockbench/lockbench/core/driver"
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
