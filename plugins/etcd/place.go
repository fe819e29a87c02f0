package etcd

import (
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// touch returns the owner's place with its time counted anew, nil when it has
// none that could still be there.
func (h *held) touch(name, owner string, now time.Time) *place {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.places[h.b.space.place(name, owner)]
	if p == nil || !now.Before(p.deadline) && p.waiting == 0 {
		return nil
	}
	p.deadline = now.Add(placeFor)
	return p
}

func (h *held) entered(p *place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := h.b.space.place(p.name, p.owner)
	h.forgetPlace(key)
	h.places[key] = p
	h.due(p.deadline)
}

func (h *held) park(p *place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.waiting++
}

// resume parks p with the view that its last Wait has left, nil if there is
// none, or if it is time to look at the place itself.
func (h *held) resume(p *place) *view {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p == nil || p.view == nil {
		return nil
	}
	v := p.view
	p.view = nil
	if !h.b.leases.renewable(p.lease) {
		h.b.hub.drop(v.watch)
		return nil
	}
	p.waiting++
	return v
}

// turn tells whether it may be p's turn: its last Wait has not left anything
// that it waits for.
func (h *held) turn(p *place) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return p != nil && p.view == nil
}

// unpark ends a Wait. What it looked at stays with the place, unless that is
// gone or what was looked at is over.
func (h *held) unpark(p *place, v *view, over bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.waiting--
	p.deadline = time.Now().Add(placeFor)
	h.due(p.deadline)
	if over || p.view != nil || h.places[h.b.space.place(p.name, p.owner)] != p {
		h.b.hub.drop(v.watch)
		return
	}
	p.view = v
}

// forget drops a place that the store does not have, or not as it is remembered.
func (h *held) forget(name, owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgetPlace(h.b.space.place(name, owner))
}

// remember takes over the owner's place as the store shows it; kv is nil when
// it has none.
func (h *held) remember(name, owner string, kv *mvccpb.KeyValue) {
	h.forget(name, owner)
	if kv == nil {
		return
	}
	now := time.Now()
	h.entered(&place{
		name: name, owner: owner, rev: kv.CreateRevision, deadline: now.Add(placeFor),
		lease: &lease{id: kv.Lease, ttl: h.b.shortest(), acked: now, retired: true},
	})
}

// stayQueued counts p's time anew while a Wait lasts, and renews its lease. It
// returns false when the place is gone, or on a lease that is not renewed.
func (b *backend) stayQueued(p *place) bool {
	b.held.mu.Lock()
	known := b.held.places[b.space.place(p.name, p.owner)] == p
	p.deadline = time.Now().Add(placeFor)
	b.held.mu.Unlock()
	if !known || !b.leases.renewable(p.lease) {
		return false
	}
	since := time.Now().Add(-placeBeat)
	if bt := b.leases.beat(p.lease, since); bt != nil {
		b.spawn(func() { _ = b.leases.await(b.ctx, p.lease, bt) }) // a lease that is gone shows as a place that is
	}
	return true
}

// losePlace forgets the place that came with g.
func (h *held) losePlace(g *grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g.place = ""
}

// forgetOwn drops the place that g's owner had before the lock was handed to it.
func (h *held) forgetOwn(g *grant) { h.forget(g.name, g.owner) }

// remain undoes depart: the lock was not deleted.
func (h *held) remain(g *grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stay(g)
}
