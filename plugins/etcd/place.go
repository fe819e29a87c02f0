package etcd

import (
	"context"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// place is an owner's place in the queue of a name. What changes is guarded by
// held.mu.
type place struct {
	name, owner string

	id       string // of its key, see held.reserve
	rev      int64  // the key's create revision, by which the queue is ordered; 0 until it is known
	epoch    *epoch // in which that counts
	lease    *lease
	deadline time.Time
	waiting  int   // Wait calls
	view     *view // of the last Wait, while there is none
}

func (p *place) who() who { return who{p.name, p.owner} }

// reserve makes a place of an owner that enters the queue, and picks its key: the
// first from number on that this process does not use for that name. A key
// begins with what only this process has, so that no two processes meet, and is
// used again: each other key would stay in the server's index until it compacts.
func (h *held) reserve(name, owner string, l *lease, number int, now time.Time) *place {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &place{name: name, owner: owner, lease: l, deadline: now.Add(placeFor)}
	for p.id == "" || h.ids[who{name, p.id}] != nil {
		p.id = h.self + strconv.Itoa(number)
		number++
	}
	h.enroll(p)
	return p
}

// enroll enters p, in place of what its owner had. The caller holds mu.
func (h *held) enroll(p *place) {
	if h.places[p.who()] != p {
		h.forgetPlace(p.who())
	}
	h.places[p.who()] = p
	h.ids[who{p.name, p.id}] = p
	h.due(p.deadline)
}

// vacate ends the use of a key by user, a place or a grant that has it. The
// caller holds mu.
func (h *held) vacate(name, id string, user any) {
	if key := (who{name, id}); h.ids[key] == user {
		delete(h.ids, key)
	}
}

// forgetPlace drops what an owner has. The caller holds mu.
func (h *held) forgetPlace(w who) {
	p := h.places[w]
	if p == nil {
		return
	}
	delete(h.places, w)
	h.vacate(p.name, p.id, p)
	h.b.leases.unload(p.lease)
	if p.view != nil {
		h.b.hub.drop(p.view.watch)
		p.view = nil
	}
}

// entered notes what came of entering p.
func (h *held) entered(p *place, s *step) {
	h.mu.Lock()
	known := h.places[p.who()] == p
	entered := s.err == nil && s.ok
	if entered {
		p.rev, p.epoch = s.rev, s.epoch
	}
	if known && !entered {
		h.forgetPlace(p.who())
	}
	var end *step
	if entered && !known { // given up meanwhile
		end = h.leave(p)
	}
	h.mu.Unlock()
	if end != nil {
		h.b.writer.submit(end)
	}
	if s.err != nil && !h.b.harmless(s.err) || is(s.err, rpctypes.ErrLeaseNotFound) {
		h.b.leases.retire(p.lease)
	}
}

// leave deletes a place that nobody waits in any more. The caller holds mu.
func (h *held) leave(p *place) *step {
	if h.places[p.who()] == p {
		h.forgetPlace(p.who())
	}
	h.ids[who{p.name, p.id}] = p // until it is gone
	key := h.b.space.place(p.name, p.id)
	s := &step{name: p.name, in: p.epoch, twice: true, req: &pb.TxnRequest{Success: []*pb.RequestOp{remove(key)}}}
	if p.rev != 0 {
		s.req.Compare = []*pb.Compare{at(key, p.rev)}
	}
	s.settle = func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if s.err != nil {
			h.b.leases.retire(p.lease)
		}
		h.vacate(p.name, p.id, p)
	}
	return s
}

// placeOf returns the owner's place, nil when it has none.
func (h *held) placeOf(name, owner string) *place {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.places[who{name, owner}]
}

// touch returns the owner's place with its time counted anew, nil when it has
// none that could still be there.
func (h *held) touch(name, owner string, now time.Time) *place {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.places[who{name, owner}]
	if p == nil || p.rev == 0 || !now.Before(p.deadline) && p.waiting == 0 {
		return nil
	}
	p.deadline = now.Add(placeFor)
	return p
}

func (h *held) park(p *place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.waiting++
}

// unbusy ends what park began, and counts p's time anew.
func (h *held) unbusy(p *place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.waiting--
	p.deadline = time.Now().Add(placeFor)
	h.due(p.deadline)
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

// turn reports whether it may be p's turn: its last Wait has not left anything
// that it waits for.
func (h *held) turn(p *place) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return p != nil && p.view == nil
}

// unpark ends a Wait. What it looked at stays with the place, unless that is
// gone or what was looked at is over.
func (h *held) unpark(p *place, v *view, over bool) {
	h.unbusy(p)
	h.mu.Lock()
	defer h.mu.Unlock()
	if over || p.view != nil || h.places[p.who()] != p {
		h.b.hub.drop(v.watch)
		return
	}
	p.view = v
}

// forget drops a place that the store does not have, or not as it is remembered.
func (h *held) forget(name, owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgetPlace(who{name, owner})
}

// remember takes over the place that kv, read in e, is of its owner: of an
// earlier process, or of a request that was repeated on its way. Its lease is
// retired from the start.
func (h *held) remember(kv *mvccpb.KeyValue, e *epoch) *place {
	now := time.Now()
	name, _, id := h.b.space.parse(string(kv.Key))
	p := &place{
		name: name, owner: ownerOf(kv), id: id, rev: kv.CreateRevision, epoch: e, deadline: now.Add(placeFor),
		lease: &lease{id: kv.Lease, ttl: h.b.placeTTL(), acked: now, retired: true},
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.enroll(p)
	return p
}

// stayQueued counts p's time anew while a Wait lasts, and renews its lease or
// moves it to one that is renewed. It returns false when the place may be gone.
func (b *Backend) stayQueued(ctx context.Context, p *place) bool {
	now := time.Now()
	b.held.mu.Lock()
	known, l := b.held.places[p.who()] == p, p.lease
	p.deadline = now.Add(placeFor)
	b.held.mu.Unlock()
	switch {
	case !known:
		return false
	case !b.leases.renewable(l):
		return b.movePlace(ctx, p, l)
	}
	if bt := b.leases.beat(l, now.Add(-placeBeat)); bt != nil {
		b.spawn(func() { _ = b.leases.await(b.ctx, l, bt) }) // a lease that is gone shows as a place that is
	}
	return true
}

// movePlace puts p on a lease of its own. The one that it is on was made by an
// earlier process of this host, or has something on it whose end is not known.
func (b *Backend) movePlace(ctx context.Context, p *place, from *lease) bool {
	now := time.Now()
	l, err := b.leases.get(ctx, b.placeTTL())
	if err != nil {
		return false
	}
	own := b.space.place(p.name, p.id)
	s := &step{name: p.name, in: p.epoch, req: &pb.TxnRequest{
		Compare: []*pb.Compare{at(own, p.rev)}, Success: []*pb.RequestOp{move(own, l.id)},
	}}
	s.settle = func() {
		b.held.mu.Lock()
		defer b.held.mu.Unlock()
		if s.err == nil && s.ok && b.held.places[p.who()] == p && p.lease == from {
			b.leases.unload(from)
			p.lease = l
			return
		}
		b.leases.unload(l)
		if s.err != nil && !b.harmless(s.err) || is(s.err, rpctypes.ErrLeaseNotFound) {
			b.leases.retire(l)
		}
	}
	beat := b.leases.beat(l, now.Add(-placeBeat))
	b.writer.submit(s)
	return s.wait(ctx, b) == nil && s.err == nil && s.ok && b.leases.await(ctx, l, beat) == nil
}

// maxHeirs is how many places are looked through for one that an earlier process
// of this host has left.
const maxHeirs = 100

// inherit finds the place that the owner had in an earlier process, which would
// stand in the way of its new one. It returns nil when there is none.
func (b *Backend) inherit(ctx context.Context, name, owner string) (*place, error) {
	resp, e, err := b.txnIn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{places(b.space, name, maxHeirs)}})
	if err != nil {
		return nil, b.wrap(err)
	}
	for _, kv := range resp.Responses[0].GetResponseRange().GetKvs() {
		if ownerOf(kv) == owner {
			return b.held.remember(kv, e), nil
		}
	}
	return nil, nil
}

// losePlace forgets the place that came with g.
func (h *held) losePlace(g *grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.vacate(g.name, g.place, g)
	g.place = ""
}
