package etcd

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/millis"
)

// Inspect reads through the consensus, then asks for the TTL of the lease.
func (b *Backend) Inspect(ctx context.Context, name string) (driver.Holder, error) {
	resp, err := b.txn(ctx, &pb.TxnRequest{Success: look(b.space, name)})
	if err != nil {
		return driver.Holder{}, b.wrap(err)
	}
	return b.holder(ctx, seenIn(resp.Responses)), nil
}

// holder describes who holds the lock, the zero Holder when nobody does.
func (b *Backend) holder(ctx context.Context, v seen) driver.Holder {
	if v.hold == nil {
		return driver.Holder{}
	}
	name, _, _ := b.space.parse(string(v.hold.Key))
	h := driver.Holder{Name: name, Owner: ownerOf(v.hold), Token: b.token(v.hold), Waiters: v.places}
	if rec, err := decodeRecord(v.hold.Value); err == nil {
		h.Label, h.Value = rec.label, rec.value
		if rec.place != "" && h.Waiters > 0 {
			h.Waiters-- // the place of the holder itself
		}
	}
	if g := b.held.find(name, h.Owner, h.Token); g != nil {
		h.TTL = max(time.Millisecond, millis.Up(b.held.left(g, time.Now())))
		return h
	}
	left, err := b.ttls.left(ctx, v.hold.Lease, v.rough)
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

// token is the one of the lease that kv is, which was read in the present epoch.
func (b *Backend) token(kv *mvccpb.KeyValue) uint64 {
	e := b.mint.present.Load()
	if e == nil {
		return 0
	}
	return e.token(kv.CreateRevision)
}

// ttls asks for what is left of leases, and remembers it for a moment: a waiter
// needs no more than a hint, and the locks of one host share a lease.
type ttls struct {
	b    *Backend
	mu   sync.Mutex
	over map[int64]expiry
}

// expiry is what a server has said of a lease: until when it lives, and for how
// long it was granted.
type expiry struct {
	asked, at time.Time
	granted   time.Duration
}

const (
	rememberTTL = 500 * time.Millisecond
	// roughTTL is the part of what was left for which a waiter relies on it.
	roughTTL = 4
	maxTTLs  = 1000
)

func (t *ttls) init(b *Backend) { t.b, t.over = b, map[int64]expiry{} }

// left is in whole seconds, as etcd counts, and up to one too little; negative
// for a key without a lease, which somebody else has put there. When rough will
// do, what is left may have become more since.
func (t *ttls) left(ctx context.Context, id int64, rough bool) (time.Duration, error) {
	if id == 0 {
		return -1, nil
	}
	e, err := t.of(ctx, id, rough)
	if err != nil {
		return 0, err
	}
	return max(time.Millisecond, millis.Up(time.Until(e.at))), nil
}

func (t *ttls) of(ctx context.Context, id int64, rough bool) (expiry, error) {
	now := time.Now()
	t.mu.Lock()
	e, known := t.over[id]
	t.mu.Unlock()
	remember := rememberTTL
	if rough {
		remember = max(remember, e.at.Sub(e.asked)/roughTTL)
	}
	if known && now.Sub(e.asked) < remember {
		return e, nil
	}
	resp, err := call(t.b, ctx, true, func(ctx context.Context, c *conn) (*pb.LeaseTimeToLiveResponse, error) {
		return c.lease.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id})
	})
	if err != nil {
		return e, t.b.wrap(err)
	}
	left := time.Duration(max(0, resp.TTL)) * time.Second
	e = expiry{asked: now, at: now.Add(left), granted: time.Duration(resp.GrantedTTL) * time.Second}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.over) >= maxTTLs {
		clear(t.over)
	}
	t.over[id] = e
	return e, nil
}
