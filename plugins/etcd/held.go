package etcd

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// grant is a lock that this process got, or may have got. What changes is
// guarded by held.mu.
type grant struct {
	name, owner, label string

	value    []byte // of the key; nil once rev is known
	token    uint64 // 0 while the acquire has no answer
	rev      int64  // the key's create revision
	epoch    *epoch // in which that counts
	place    string
	lease    *lease
	deadline time.Time // counted from the start of the last successful request
	leaving  bool      // this process is deleting it
	busy     int       // renewals under way
	born     time.Time
	known    int64 // revision at which the key was seen last
	watch    *sub
}

// held knows what this process has put on shared leases, and deletes it when its
// time is over: on a shared lease etcd does not. Nothing here is needed to
// renew or release after a restart; then it is read from the store.
type held struct {
	b      *Backend
	began  time.Time
	self   string // what the keys of this process' places begin with
	wake   chan struct{}
	mu     sync.Mutex
	grants map[who]*grant
	places map[who]*place
	ids    map[who]any // the place or the grant that has the key of name and id
	next   time.Time   // no deadline is before it; zero when there is none
	sentry sentry
}

// who names a grant or a place.
type who struct{ name, owner string }

func (g *grant) who() who { return who{g.name, g.owner} }

func (h *held) init(b *Backend) {
	h.b, h.began, h.wake = b, time.Now(), make(chan struct{}, 1)
	h.self = strconv.FormatUint(rand.Uint64(), 36) + "-"
	h.grants, h.places, h.ids = map[who]*grant{}, map[who]*place{}, map[who]any{}
	h.sentry.init(h)
}

// expect enters a grant before its acquire is sent, so that it ends in time even
// if no answer comes. An owner that asks again keeps the entry it has.
func (h *held) expect(g *grant) {
	key := g.who()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.grants[key] == nil {
		h.grants[key] = g
		h.due(g.deadline)
	}
}

// due sees to it that run looks at d. The caller holds mu.
func (h *held) due(d time.Time) {
	if h.next.IsZero() || d.Before(h.next) {
		h.next = d
		signal(h.wake)
	}
}

// find returns the grant of owner and token, nil when it is not known here.
func (h *held) find(name, owner string, token uint64) *grant {
	h.mu.Lock()
	defer h.mu.Unlock()
	g := h.grants[who{name, owner}]
	if g == nil || g.token == 0 || g.token != token {
		return nil
	}
	return g
}

// confirm turns g into a held lock.
func (h *held) confirm(g *grant, e *epoch, rev int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := g.who()
	if old := h.grants[key]; old != nil && old != g {
		h.remove(old)
	}
	h.grants[key] = g
	g.token, g.rev, g.epoch, g.known, g.born, g.value = e.token(rev), rev, e, rev, time.Now(), nil
	if g.place != "" {
		h.ids[who{g.name, g.place}] = g
		if p := h.places[key]; p != nil && p.id == g.place { // it moved to the lease of the lock
			h.forgetPlace(key)
		}
	}
	h.due(g.deadline)
	h.sentry.add(g)
}

// cancel forgets a grant that did not come about.
func (h *held) cancel(g *grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.remove(g) {
		h.b.leases.unload(g.lease)
	}
}

// adopt enters a grant that was read from the store, and returns its entry.
func (h *held) adopt(g *grant) *grant {
	key := g.who()
	h.mu.Lock()
	defer h.mu.Unlock()
	if known := h.grants[key]; known != nil && known.token == g.token {
		return known
	}
	h.grants[key] = g
	h.due(g.deadline)
	h.sentry.add(g)
	return g
}

// drop forgets g.
func (h *held) drop(g *grant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remove(g)
}

func (h *held) remove(g *grant) bool {
	key := g.who()
	if h.grants[key] != g {
		return false
	}
	delete(h.grants, key)
	h.vacate(g.name, g.place, g)
	h.b.leases.unload(g.lease)
	h.b.hub.drop(g.watch)
	return true
}

// run ends what is overdue, and lets the sentry look after the rest.
func (h *held) run() {
	for {
		timer := time.NewTimer(h.pause())
		select {
		case <-h.wake:
		case <-timer.C:
		case <-h.b.ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
		h.sentry.work()
		if steps := h.overdue(time.Now()); len(steps) > 0 {
			h.b.writer.submit(steps...)
		}
	}
}

func (h *held) pause() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	until := time.Hour
	if !h.next.IsZero() {
		until = time.Until(h.next)
	}
	return max(0, min(until, h.sentry.pause()))
}

// overdue takes out what is over and returns the deletes for it.
func (h *held) overdue(now time.Time) []*step {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.next.IsZero() || now.Before(h.next) {
		return nil
	}
	h.next = time.Time{}
	var steps []*step
	for _, g := range h.grants {
		switch {
		case g.leaving:
		case g.busy > 0 && !now.Before(g.deadline): // its end calls due
		case now.Before(g.deadline):
			h.due(g.deadline)
		default:
			g.leaving = true
			steps = append(append(steps, h.end(g)), h.orphan(g)...)
		}
	}
	for _, p := range h.places {
		switch {
		case now.Before(p.deadline):
			h.due(p.deadline)
		case p.waiting == 0:
			steps = append(steps, h.leave(p))
		}
	}
	return steps
}

// end deletes a grant whose time is over. If that cannot be confirmed its lease
// is renewed no more. An acquire that may still arrive finds its owner barred
// by core's withdrawal, or else its lease retired and soon over.
func (h *held) end(g *grant) *step {
	own := at(h.b.space.hold(g.name), g.rev)
	if g.rev == 0 {
		own = worth(h.b.space.hold(g.name), g.value)
	}
	s := &step{name: g.name, in: g.epoch, twice: true, req: &pb.TxnRequest{
		Compare: []*pb.Compare{own}, Success: []*pb.RequestOp{remove(h.b.space.hold(g.name))},
	}}
	s.settle = func() {
		if s.err != nil {
			h.b.leases.retire(g.lease)
		}
		h.drop(g)
	}
	return s
}

// removal deletes g's key and the place that came with it. The caller holds mu.
func (h *held) removal(g *grant) []*pb.RequestOp {
	ops := []*pb.RequestOp{remove(h.b.space.hold(g.name))}
	if g.place != "" {
		ops = append(ops, remove(h.b.space.place(g.name, g.place)))
	}
	return ops
}

// lost drops g, which is not in the store any more, and what came with it: its
// place would hold up the queue as long as other locks renew the lease.
func (h *held) lost(g *grant) bool {
	h.mu.Lock()
	if !h.remove(g) {
		h.mu.Unlock()
		return false
	}
	steps := h.orphan(g)
	h.mu.Unlock()
	h.b.writer.submit(steps...)
	return true
}

// orphan deletes the place that came with g. The caller holds mu.
func (h *held) orphan(g *grant) []*step {
	if g.place == "" {
		return nil
	}
	return []*step{h.leave(&place{name: g.name, id: g.place, lease: g.lease})}
}
