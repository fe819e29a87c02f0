package etcd

import (
	"context"
	"slices"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
	"github.com/lockbench/lockbench/plugins/etcd/internal/txn"
)

// entry is an owner's entry in the queue of a name. What changes is guarded by
// table.mu.
type entry struct {
	name, owner string

	id         string          // of its key, see table.newEntry
	rev        int64           // the key's create revision, by which the queue is ordered; 0 until it is known
	generation *txn.Generation // in which that counts
	lease      *lease
	deadline   time.Time
	waiting    int          // Wait calls
	before     *predecessor // what the last Wait has left; nil while there is one
}

func (e *entry) who() grantKey { return grantKey{e.name, e.owner} }

// newEntry makes an entry of an owner that comes into the queue, and picks its key: the
// first from number on that this process does not use for that name. A key
// begins with what only this process has, so that no two processes meet, and is
// used again: each other key would stay in the server's index until it compacts.
func (t *table) newEntry(name, owner string, l *lease, number int, now time.Time) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := &entry{name: name, owner: owner, lease: l, deadline: now.Add(entryFor)}
	for e.id == "" || t.ids[grantKey{name, e.id}] != nil {
		e.id = t.self + strconv.Itoa(number)
		number++
	}
	t.addEntry(e)
	return e
}

// addEntry enters e, instead of what its owner had. The caller holds mu.
func (t *table) addEntry(e *entry) {
	if t.entries[e.who()] != e {
		t.removeEntry(e.who())
	}
	t.entries[e.who()] = e
	t.ids[grantKey{e.name, e.id}] = e
	t.due(e.deadline)
}

// freeID ends the use of a key by user, an entry or a grant that has it. The
// caller holds mu.
func (t *table) freeID(name, id string, user any) {
	if key := (grantKey{name, id}); t.ids[key] == user {
		delete(t.ids, key)
	}
}

// removeEntry forgets the entry of an owner. The caller holds mu.
func (t *table) removeEntry(w grantKey) {
	e := t.entries[w]
	if e == nil {
		return
	}
	delete(t.entries, w)
	t.freeID(e.name, e.id, e)
	t.leases.unload(e.lease)
}

// entered notes what came of putting e into the queue.
func (t *table) entered(e *entry, s *txn.Step) {
	t.mu.Lock()
	known := t.entries[e.who()] == e
	entered := s.Err == nil && s.OK
	if entered {
		e.rev, e.generation = s.Rev, s.Generation
	}
	if known && !entered {
		t.removeEntry(e.who())
	}
	var end *txn.Step
	if entered && !known { // given up meanwhile
		end = t.deleteEntry(e)
	}
	t.mu.Unlock()
	if end != nil {
		t.txns.Submit(end)
	}
	if s.Err != nil && !t.cluster.Harmless(s.Err) || cluster.Is(s.Err, rpctypes.ErrLeaseNotFound) {
		t.leases.retire(e.lease)
	}
}

// deleteEntry deletes an entry that nobody waits in any more. The caller holds mu.
func (t *table) deleteEntry(e *entry) *txn.Step {
	if t.entries[e.who()] == e {
		t.removeEntry(e.who())
	}
	t.ids[grantKey{e.name, e.id}] = e // until it is gone
	key := t.space.entry(e.name, e.id)
	s := &txn.Step{Name: e.name, In: e.generation, Twice: true, Req: &pb.TxnRequest{Success: []*pb.RequestOp{txn.Delete(key)}}}
	if e.rev != 0 {
		s.Req.Compare = []*pb.Compare{txn.At(key, e.rev)}
	}
	s.OnAnswer = func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if s.Err != nil {
			t.leases.retire(e.lease)
		}
		t.freeID(e.name, e.id, e)
	}
	return s
}

// entryOf returns the owner's entry, nil when it has none.
func (t *table) entryOf(name, owner string) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.entries[grantKey{name, owner}]
}

// touchEntry returns the owner's entry with its time counted anew, nil when it has
// none. One whose time was over before this process ran again is looked at: another
// process may have taken it away. It must not be forgotten, because it would stay
// at its place for as long as other entries renew the lease.
func (t *table) touchEntry(name, owner string, now time.Time) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[grantKey{name, owner}]
	if e == nil || e.rev == 0 {
		return nil
	}
	if e.waiting == 0 && !now.Before(e.deadline) {
		e.before = nil
	}
	e.deadline = now.Add(entryFor)
	return e
}

// pin keeps e for as long as a Wait, or an acquire, takes.
func (t *table) pin(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.waiting++
}

// unpin ends what pin began, and counts e's time anew.
func (t *table) unpin(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.waiting--
	e.deadline = time.Now().Add(entryFor)
	t.due(e.deadline)
}

// resumeEntry pins e and returns what its last Wait has left, nil if that is
// nothing, or if it is time to look at the entry itself.
func (t *table) resumeEntry(e *entry) *predecessor {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e == nil || e.before == nil {
		return nil
	}
	p := e.before
	e.before = nil
	if !t.leases.renewable(e.lease, e.lease.ttl) {
		return nil
	}
	e.waiting++
	return p
}

// mayBeNext reports whether it may be e's turn: its last Wait has not left anything
// that it waits for.
func (t *table) mayBeNext(e *entry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return e != nil && e.before == nil
}

// pauseEntry ends a Wait, which leaves to the next one what it waits for, unless
// that is over.
func (t *table) pauseEntry(e *entry, p *predecessor, over bool) {
	t.unpin(e)
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.before = p; over {
		e.before = nil
	}
}

// forgetEntry drops an entry that the store does not have, or not as it is remembered.
func (t *table) forgetEntry(name, owner string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeEntry(grantKey{name, owner})
}

// adoptEntry takes over the entry that kv, read in gen, is of its owner: of an
// earlier process, or of a request that was repeated on its way. Its lease is
// retired from the start.
func (t *table) adoptEntry(kv *mvccpb.KeyValue, gen *txn.Generation) *entry {
	now := time.Now()
	name, _, id := t.space.parse(string(kv.Key))
	e := &entry{
		name: name, owner: ownerOf(kv), id: id, rev: kv.CreateRevision, generation: gen, deadline: now.Add(entryFor),
		lease: &lease{id: kv.Lease, purpose: t.forEntries(), acked: now, retired: true},
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.addEntry(e)
	return e
}

// renewEntry counts e's time anew while a Wait lasts, and renews its lease or
// moves it to one that is renewed. It returns false when the entry may be gone.
func (t *table) renewEntry(ctx context.Context, e *entry) bool {
	now := time.Now()
	t.mu.Lock()
	known, l := t.entries[e.who()] == e, e.lease
	e.deadline = now.Add(entryFor)
	t.mu.Unlock()
	switch {
	case !known:
		return false
	case !t.leases.renewable(l, l.ttl):
		return t.moveEntry(ctx, e, l)
	}
	t.keepLease(l, now)
	return true
}

// keepEntry is keepLease for one who asks for the lock, whose queue entry is e.
func (t *table) keepEntry(e *entry, now time.Time) {
	t.mu.Lock()
	l := e.lease
	t.mu.Unlock()
	if t.leases.renewable(l, l.ttl) {
		t.keepLease(l, now)
	}
}

// keepLease renews the lease l of entries, if it is time. Who waits tells others by
// that, also while its acquires fail, that it is not silent (see evict).
func (t *table) keepLease(l *lease, now time.Time) {
	if k := t.leases.keepalive(l, now.Add(-entryRenewal)); k != nil {
		t.cluster.Go(func() { _ = t.leases.await(t.cluster.Context(), l, k) }) // a lease that is gone shows as an entry that is
	}
}

// moveEntry puts e on a lease of its own. The one that it is on was made by an
// earlier process of this host, or has something on it whose end is not known.
func (t *table) moveEntry(ctx context.Context, e *entry, from *lease) bool {
	now := time.Now()
	l, err := t.leases.get(ctx, t.forEntries())
	if err != nil {
		return false
	}
	own := t.space.entry(e.name, e.id)
	s := &txn.Step{Name: e.name, In: e.generation, Req: &pb.TxnRequest{
		Compare: []*pb.Compare{txn.At(own, e.rev)}, Success: []*pb.RequestOp{txn.Move(own, l.id)},
		Failure: []*pb.RequestOp{txn.Exists(own)},
	}}
	s.Done = func() bool {
		kvs := s.Ops[0].GetResponseRange().GetKvs()
		return len(kvs) > 0 && kvs[0].CreateRevision == e.rev && kvs[0].Lease == l.id
	}
	s.OnAnswer = func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if s.Err == nil && s.OK && t.entries[e.who()] == e && e.lease == from {
			t.leases.unload(from)
			e.lease = l
			return
		}
		t.leases.unload(l)
		if s.Err != nil && !t.cluster.Harmless(s.Err) || cluster.Is(s.Err, rpctypes.ErrLeaseNotFound) {
			t.leases.retire(l)
		}
	}
	k := t.leases.keepalive(l, now.Add(-entryRenewal))
	return t.txns.Do(ctx, s) == nil && s.Err == nil && s.OK && t.leases.await(ctx, l, k) == nil
}

// maxInherited is how many entries are looked through for one that an earlier
// process of this host has left.
const maxInherited = 100

// found is the queue of a name as it was when this process first waited there.
type found struct {
	entries    []*mvccpb.KeyValue // not adopted yet
	generation *txn.Generation
}

// inheritEntry finds the entry that the owner had in an earlier process, which
// would stand in the way of its new one. It returns nil when there is none. An
// earlier process is dead before this one begins, so that one look at each name
// is enough; after twice the time that an entry outlives it there is none left.
func (t *table) inheritEntry(ctx context.Context, name, owner string) (*entry, error) {
	if time.Since(t.began) >= 2*entryFor {
		t.mu.Lock()
		defer t.mu.Unlock()
		clear(t.found)
		return nil, nil
	}
	t.mu.Lock()
	f, known := t.found[name]
	t.mu.Unlock()
	if !known {
		resp, gen, err := t.txns.Read(ctx, entries(t.space, name, maxInherited))
		if err != nil {
			return nil, t.cluster.Wrap(err)
		}
		f = found{resp.Responses[0].GetResponseRange().GetKvs(), gen}
	}
	i := slices.IndexFunc(f.entries, func(kv *mvccpb.KeyValue) bool { return ownerOf(kv) == owner })
	var kv *mvccpb.KeyValue
	if i >= 0 {
		kv = f.entries[i]
		f.entries = slices.Delete(slices.Clone(f.entries), i, i+1)
	}
	t.mu.Lock()
	t.found[name] = f
	t.mu.Unlock()
	if kv == nil {
		return nil, nil
	}
	return t.adoptEntry(kv, f.generation), nil
}
