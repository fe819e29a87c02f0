package etcd

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
	"github.com/lockbench/lockbench/plugins/etcd/internal/txn"
	"github.com/lockbench/lockbench/plugins/etcd/internal/watch"
	"github.com/lockbench/lockbench/plugins/internal/wake"
)

// table knows what this process has put on shared leases, and deletes it when its
// time is over: on a shared lease etcd does not. Nothing here is needed to
// renew or release after a restart; then it is read from the store.
type table struct {
	space   space
	cluster *cluster.Cluster
	txns    *txn.Writer
	leases  *leases
	watches *watch.Mux

	began   time.Time
	self    string // what the keys of this process' queue entries begin with
	wake    chan struct{}
	mu      sync.Mutex
	grants  map[grantKey]*grant
	entries map[grantKey]*entry
	ids     map[grantKey]any // the entry or the grant that has the key of name and id
	found   map[string]found
	next    time.Time // no deadline is before it; zero when there is none
	losses  losses
}

// grantKey names a grant or a queue entry.
type grantKey struct{ name, owner string }

// newTable returns a table, which works until c is closed.
func newTable(s space, c *cluster.Cluster, txns *txn.Writer, leases *leases, watches *watch.Mux) *table {
	t := &table{
		space: s, cluster: c, txns: txns, leases: leases, watches: watches,
		began: time.Now(), self: strconv.FormatUint(rand.Uint64(), 36) + "-", wake: make(chan struct{}, 1),
		grants: map[grantKey]*grant{}, entries: map[grantKey]*entry{}, ids: map[grantKey]any{}, found: map[string]found{},
	}
	t.losses.table = t
	c.Go(t.run)
	return t
}

// expect records a grant before its acquire is sent, so that it ends in time even
// if no answer comes. An owner that asks again keeps the grant it has.
func (t *table) expect(g *grant) {
	key := g.who()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.grants[key] == nil {
		t.grants[key] = g
		t.due(g.deadline)
	}
}

// due sees to it that run looks at d. The caller holds mu.
func (t *table) due(d time.Time) {
	if t.next.IsZero() || d.Before(t.next) {
		t.next = d
		wake.Up(t.wake)
	}
}

// find returns the grant of owner and token, nil when it is not known here.
func (t *table) find(name, owner string, token uint64) *grant {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.grants[grantKey{name, owner}]
	if g == nil || g.token == 0 || g.token != token {
		return nil
	}
	return g
}

// confirm turns g into a held lock.
func (t *table) confirm(g *grant, gen *txn.Generation, rev int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := g.who()
	if old := t.grants[key]; old != nil && old != g {
		t.remove(old)
	}
	t.grants[key] = g
	g.token, g.rev, g.generation, g.seenAt, g.since, g.value = gen.Token(rev), rev, gen, rev, time.Now(), nil
	if g.entry != "" {
		t.ids[grantKey{g.name, g.entry}] = g
		if e := t.entries[key]; e != nil && e.id == g.entry { // it moved to the lease of the lock
			t.removeEntry(key)
		}
	}
	t.due(g.deadline)
	t.losses.add(g)
}

// cancel forgets a grant that did not come about.
func (t *table) cancel(g *grant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.remove(g) {
		t.leases.unload(g.lease)
	}
}

// adopt records a grant that was read from the store, unless it is known, and returns
// the one that is in the table.
func (t *table) adopt(g *grant) *grant {
	key := g.who()
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.grants[key]; known != nil && known.token == g.token {
		return known
	}
	t.grants[key] = g
	t.due(g.deadline)
	t.losses.add(g)
	return g
}

// drop forgets g.
func (t *table) drop(g *grant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(g)
}

// remove forgets g. The caller holds mu.
func (t *table) remove(g *grant) bool {
	key := g.who()
	if t.grants[key] != g {
		return false
	}
	delete(t.grants, key)
	t.freeID(g.name, g.entry, g)
	t.leases.unload(g.lease)
	t.watches.Drop(g.watch)
	return true
}

// run ends what is overdue, and has lost ones looked for.
func (t *table) run() {
	for {
		timer := time.NewTimer(t.pause())
		select {
		case <-t.wake:
		case <-timer.C:
		case <-t.cluster.Context().Done():
			timer.Stop()
			return
		}
		timer.Stop()
		t.losses.work()
		if steps := t.overdue(time.Now()); len(steps) > 0 {
			t.txns.Submit(steps...)
		}
	}
}

func (t *table) pause() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	until := time.Hour
	if !t.next.IsZero() {
		until = time.Until(t.next)
	}
	return max(0, min(until, t.losses.pause()))
}

// overdue takes out what is over and returns the deletes for it.
func (t *table) overdue(now time.Time) []*txn.Step {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next.IsZero() || now.Before(t.next) {
		return nil
	}
	t.next = time.Time{}
	var steps []*txn.Step
	for _, g := range t.grants {
		switch {
		case g.deleting:
		case g.renewing > 0 && !now.Before(g.deadline): // its end calls due
		case now.Before(g.deadline):
			t.due(g.deadline)
		default:
			g.deleting = true
			steps = append(append(steps, t.end(g)), t.orphan(g)...)
		}
	}
	for _, e := range t.entries {
		switch {
		case now.Before(e.deadline):
			t.due(e.deadline)
		case e.waiting == 0:
			steps = append(steps, t.deleteEntry(e))
		}
	}
	return steps
}

// end deletes a grant whose time is over. If that cannot be confirmed its lease
// is renewed no more. An acquire that may still arrive finds the
// tombstone of core's withdrawal, or else its lease retired and soon over.
func (t *table) end(g *grant) *txn.Step {
	own := txn.At(t.space.hold(g.name), g.rev)
	if g.rev == 0 {
		own = txn.Worth(t.space.hold(g.name), g.value)
	}
	s := &txn.Step{Name: g.name, In: g.generation, Twice: true, Req: &pb.TxnRequest{
		Compare: []*pb.Compare{own}, Success: []*pb.RequestOp{txn.Delete(t.space.hold(g.name))},
	}}
	s.OnAnswer = func() {
		if s.Err != nil {
			t.leases.retire(g.lease)
		}
		t.drop(g)
	}
	return s
}

// removal deletes g's key and the queue entry that came with it. The caller holds mu.
func (t *table) removal(g *grant) []*pb.RequestOp {
	ops := []*pb.RequestOp{txn.Delete(t.space.hold(g.name))}
	if g.entry != "" {
		ops = append(ops, txn.Delete(t.space.entry(g.name, g.entry)))
	}
	return ops
}

// lost drops g, which is not in the store any more, and what came with it: its
// queue entry would hold up others as long as other locks renew the lease.
func (t *table) lost(g *grant) bool {
	t.mu.Lock()
	if !t.remove(g) {
		t.mu.Unlock()
		return false
	}
	steps := t.orphan(g)
	t.mu.Unlock()
	t.txns.Submit(steps...)
	return true
}

// orphan deletes the queue entry that came with g. The caller holds mu.
func (t *table) orphan(g *grant) []*txn.Step {
	if g.entry == "" {
		return nil
	}
	return []*txn.Step{t.deleteEntry(&entry{name: g.name, id: g.entry, lease: g.lease})}
}
