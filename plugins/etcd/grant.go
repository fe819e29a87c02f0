package etcd

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/lockbench/lockbench/plugins/etcd/internal/txn"
	"github.com/lockbench/lockbench/plugins/etcd/internal/watch"
)

// grant is a lock that this process got, or may have got. What changes is
// guarded by table.mu.
type grant struct {
	name, owner, label string

	value      []byte          // of the key; nil once rev is known
	token      uint64          // 0 while the acquire has no answer
	rev        int64           // the key's create revision
	generation *txn.Generation // in which that counts
	entry      string          // id of the queue entry that it was got from, "" when it had none
	lease      *lease
	unsure     bool      // a move had no answer: the key may be on another lease, or come there late
	deadline   time.Time // counted from the start of the last successful request
	deleting   bool      // this process is deleting it
	renewing   int       // renewals under way
	since      time.Time // when it was granted
	seenAt     int64     // revision at which the key was seen last
	watch      *watch.Watch
}

func (g *grant) who() grantKey { return grantKey{g.name, g.owner} }

// beginRenewal keeps g from ending until endRenewal. It
// returns false when the time of g is over, or it is being deleted.
func (t *table) beginRenewal(g *grant, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g.deleting || !now.Before(g.deadline) {
		return false
	}
	g.renewing++
	return true
}

// endRenewal ends what beginRenewal began. deadline and rev are those of a successful
// renewal, else zero.
func (t *table) endRenewal(g *grant, deadline time.Time, rev int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g.renewing--
	if !deadline.IsZero() {
		g.deadline, g.seenAt = deadline, max(g.seenAt, rev)
	}
	t.due(g.deadline)
}

// moved notes that g's key is on another lease now.
func (t *table) moved(g *grant, l *lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leases.unload(g.lease)
	g.lease, g.unsure = l, false
}

// unsure notes that a move of g had no answer.
func (t *table) unsure(g *grant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g.unsure = true
}

// isUnsure reports whether g's key may be on another lease than leaseOf says.
func (t *table) isUnsure(g *grant) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return g.unsure
}

// relocated notes that g's key was seen on l. It may leave that yet if it is where it
// was: a move that has arrived from there cannot do so again (see moving).
func (t *table) relocated(g *grant, l *lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leases.unload(g.lease)
	g.unsure = g.unsure && g.lease.id == l.id
	g.lease = l
}

// leaseOf returns the lease that g's key is on.
func (t *table) leaseOf(g *grant) *lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	return g.lease
}

// left is how long g still lives.
func (t *table) left(g *grant, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return g.deadline.Sub(now)
}

// deleting marks g as being deleted and returns the operations that do it.
func (t *table) deleting(g *grant) []*pb.RequestOp {
	t.mu.Lock()
	defer t.mu.Unlock()
	g.deleting = true
	return t.removal(g)
}

// deleted notes what came of deleting g. When that is unknown, the lease is
// renewed no more, and run tries again at the deadline.
func (t *table) deleted(g *grant, s *txn.Step) {
	if s.Err == nil && s.OK {
		t.drop(g)
		return
	}
	if s.Err == nil {
		t.lost(g)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.cluster.Harmless(s.Err) {
		t.leases.retire(g.lease)
	}
	t.stay(g)
}

// stay undoes deleting: g was not deleted, as far as is known. The caller holds mu.
func (t *table) stay(g *grant) {
	g.deleting = false
	t.due(g.deadline)
	t.losses.add(g)
}

// withdrawing is deleting for an owner of whom little is known.
func (t *table) withdrawing(name, owner string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.grants[grantKey{name, owner}]; g != nil {
		g.deleting = true
	}
}

// withdrawn notes what came of withdrawing an owner. Unless that is final, an
// acquire without an answer may yet arrive, and is to be deleted at its deadline.
func (t *table) withdrawn(name, owner string, s *txn.Step, final bool) {
	t.mu.Lock()
	g := t.grants[grantKey{name, owner}]
	switch {
	case g != nil && (s.Err != nil || !final && g.token == 0):
		t.stay(g)
	case g != nil:
		t.remove(g)
	}
	if s.Err == nil {
		t.removeEntry(grantKey{name, owner})
	}
	t.mu.Unlock()
}

// verify reads which of grants are still in the store. It returns those that
// are not, and the revision at which the others were there.
func (t *table) verify(ctx context.Context, grants []*grant) (gone map[*grant]bool, rev int64, err error) {
	gone = map[*grant]bool{}
	reads := make([][]*pb.RequestOp, len(grants))
	for i, g := range grants {
		reads[i] = []*pb.RequestOp{txn.Exists(t.space.hold(g.name))}
	}
	_, err = t.txns.ReadEach(ctx, reads, func(i int, r txn.Found) {
		g, kvs := grants[i], r.Ops[0].GetResponseRange().GetKvs()
		if rev == 0 || r.Rev < rev {
			rev = r.Rev
		}
		if len(kvs) == 0 || kvs[0].CreateRevision != g.rev || !r.Generation.Same(g.generation) {
			gone[g] = true
		}
	})
	if err != nil {
		return nil, 0, t.cluster.Wrap(err)
	}
	return gone, rev, nil
}
