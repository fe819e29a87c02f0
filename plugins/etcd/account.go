package etcd

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// begin keeps g from ending while a renewal is under way; end ends that. It
// returns false when the time of g is over, or it is being deleted.
func (h *held) begin(g *grant, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if g.leaving || !now.Before(g.deadline) {
		return false
	}
	g.busy++
	return true
}

// finish ends what begin began. deadline and rev are those of a successful
// renewal, else zero.
func (h *held) finish(g *grant, deadline time.Time, rev int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g.busy--
	if !deadline.IsZero() {
		g.deadline, g.known = deadline, max(g.known, rev)
	}
	h.due(g.deadline)
}

// rehouse notes that g's key is on another lease now.
func (h *held) rehouse(g *grant, l *lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.b.leases.unload(g.lease)
	g.lease = l
}

// stays reports whether a keepalive of its lease renews g for ttl.
func (h *held) stays(g *grant, ttl time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return g.lease.ttl == ttl && h.b.leases.renewable(g.lease)
}

// leaseOf returns the lease that g's key is on.
func (h *held) leaseOf(g *grant) *lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return g.lease
}

// left is how long g still lives.
func (h *held) left(g *grant, now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return g.deadline.Sub(now)
}

// depart marks g as being deleted and returns the operations that do it.
func (h *held) depart(g *grant) []*pb.RequestOp {
	h.mu.Lock()
	defer h.mu.Unlock()
	g.leaving = true
	return h.removal(g)
}

// departed notes what came of deleting g. When that is unknown, the lease is
// renewed no more, and run tries again at the deadline.
func (h *held) departed(g *grant, s *step) {
	if s.err == nil && s.ok {
		h.drop(g)
		return
	}
	if s.err == nil {
		h.lost(g)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.b.harmless(s.err) {
		h.b.leases.retire(g.lease)
	}
	h.stay(g)
}

// stay undoes depart: g was not deleted, as far as is known. The caller holds mu.
func (h *held) stay(g *grant) {
	g.leaving = false
	h.due(g.deadline)
	h.sentry.add(g)
}

// withdrawing is depart for an owner of whom little is known.
func (h *held) withdrawing(name, owner string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if g := h.grants[who{name, owner}]; g != nil {
		g.leaving = true
	}
}

func (h *held) withdrawn(name, owner string, s *step) {
	h.mu.Lock()
	g := h.grants[who{name, owner}]
	switch {
	case g != nil && s.err != nil:
		h.stay(g)
	case g != nil:
		h.remove(g)
	}
	if s.err == nil {
		h.forgetPlace(who{name, owner})
	}
	h.mu.Unlock()
}

// verify reads which of grants are still in the store. It returns those that
// are not, and the revision at which the others were there.
func (h *held) verify(ctx context.Context, grants []*grant) (gone []*grant, rev int64, err error) {
	for len(grants) > 0 {
		part := grants[:min(len(grants), maxReads)]
		grants = grants[len(part):]
		req := &pb.TxnRequest{}
		for _, g := range part {
			req.Success = append(req.Success, exists(h.b.space.hold(g.name)))
		}
		resp, e, err := h.b.txnIn(ctx, req)
		if err != nil {
			return nil, 0, h.b.wrap(err)
		}
		if rev == 0 || resp.Header.Revision < rev {
			rev = resp.Header.Revision
		}
		for i, g := range part {
			kvs := resp.Responses[i].GetResponseRange().GetKvs()
			if len(kvs) == 0 || kvs[0].CreateRevision != g.rev || !e.same(g.epoch) {
				gone = append(gone, g)
			}
		}
	}
	return gone, rev, nil
}

// maxReads is how many reads share a Txn, which needs no consensus entry when
// there is nothing else in it.
const maxReads = 100
