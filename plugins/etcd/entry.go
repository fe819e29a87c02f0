package etcd

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/txn"
	"github.com/lockbench/lockbench/plugins/etcd/internal/watch"
)

// entry is a key in the queue of a lock. The first entry of the queue is the
// lock. table.mu guards the fields that change.
type entry struct {
	name, owner, label string

	key        string
	rev        int64           // the key's create revision; 0 until it is known
	generation *txn.Generation // the generation in which rev counts
	lease      *lease          // the lease that the key is on, as far as this process knows
	unsure     bool            // the key may be on another lease, because a move had no answer
	deadline   time.Time       // when this process deletes it
	busy       int             // waits, acquires and renewals under way, which delay the delete
	ending     bool            // this process is deleting the entry

	before *predecessor // the state that the last Wait left; nil while a Wait runs
	held   bool         // the entry is known to be the lock
	since  time.Time    // when held became true
	seenAt int64        // the last revision at which the key was seen
	watch  *watch.Watch
}

func (e *entry) who() entryKey { return entryKey{e.name, e.owner} }

// token returns the lock's token. Entries become the lock in the order of their revisions.
func (e *entry) token() uint64 { return e.generation.Token(e.rev) }

// is reports whether kv, which was read in the generation gen, is e's key.
func (e *entry) is(kv *mvccpb.KeyValue, gen *txn.Generation) bool {
	return kv != nil && e.rev != 0 && kv.CreateRevision == e.rev && string(kv.Key) == e.key && gen.Same(e.generation)
}

// short reports whether e is on a lease for waiters, so no acquire or renewal has moved it yet.
func (e *entry) short() bool { return e.lease.use == waiting }

// pin keeps e while an operation of its owner runs, and for at least entryFor
// after it. The caller holds mu.
func (t *table) pin(e *entry, now time.Time) *entry {
	if e.busy == 0 && !e.held && !now.Before(e.deadline) {
		e.before = nil // the process was paused, so the entry must be read again
	}
	e.busy++
	e.extend(now)
	return e
}

// extend puts off e's deadline unless e is the lock, whose deadline only a confirmation moves.
func (e *entry) extend(now time.Time) {
	if !e.held {
		e.deadline = now.Add(entryFor)
	}
}

// unpin undoes one pin, and saves the state before for the owner's next Wait.
func (t *table) unpin(e *entry, before *predecessor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.busy--
	e.before = before
	e.extend(time.Now())
	t.due(e.deadline)
}

// queued returns and pins the entry of an owner that waits, or that was granted the lock in the
// queue and has not confirmed the grant; nil if there is no such entry. It also returns the state
// that the owner's last Wait left, or nil if there is none or the entry must be read again.
func (t *table) queued(r driver.Request, now time.Time) (*entry, *predecessor) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[entryKey{r.Name, r.Owner}]
	if e == nil || e.rev == 0 || e.ending || !e.short() {
		return nil, nil
	}
	t.pin(e, now)
	before := e.before
	e.before = nil
	return e, before
}

// owns reports whether e is still the entry of its owner.
func (t *table) owns(e *entry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.entries[e.who()] == e
}

// known notes that e's key was created at rev.
func (t *table) known(e *entry, gen *txn.Generation, rev int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.generation, e.rev, e.seenAt = gen, rev, rev
}

// hold notes that e is the lock until deadline. The caller holds mu.
func (t *table) hold(e *entry, deadline time.Time) {
	if old := t.entries[e.who()]; old != e {
		t.remove(old)
		t.entries[e.who()] = e
	}
	e.held, e.since, e.deadline = true, time.Now(), deadline
	t.due(deadline)
	t.losses.add(e)
}

// confirm notes that e is the lock, on the lease l, until ttl has passed since the instant began.
func (t *table) confirm(e *entry, l *lease, began time.Time, ttl time.Duration, rev int64) {
	t.moved(e, l)
	t.mu.Lock()
	defer t.mu.Unlock()
	e.seenAt = max(e.seenAt, rev)
	t.hold(e, began.Add(ttl))
}

// granted notes that e is the lock, because no entry is before it, and returns the
// grant. The grant lasts for the TTL of the waiters' lease, or for r.TTL if that is shorter,
// counted from the lease's last confirmed keepalive. If more than half of that time is over, or
// e may be on another lease or lack part of its value, granted returns the zero Grant.
func (t *table) granted(e *entry, r driver.Request) driver.Grant {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	sent, span := t.leases.sign(e.lease), min(e.lease.ttl, r.TTL)
	if t.entries[e.who()] != e || e.ending || !e.short() || e.unsure || len(r.Value) > maxWaitingValue || now.After(sent.Add(span/2)) {
		return driver.Grant{}
	}
	t.hold(e, sent.Add(span))
	return driver.Grant{Token: e.token(), Sent: sent, For: span}
}

// moved notes that e's key is now on the lease l. A move still under way cannot
// take the key elsewhere, because it demands that the key is on an earlier lease.
func (t *table) moved(e *entry, l *lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.lease != l {
		t.leases.unload(e.lease)
	}
	e.lease, e.unsure = l, false
}

// notMoved notes that e's key was not moved to the lease l or, if unsure, that the key may be on l.
func (t *table) notMoved(e *entry, l *lease, unsure bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leases.unload(l)
	e.unsure = e.unsure || unsure
}

// where returns the lease that e is on. unsure says that e may be on another lease.
func (t *table) where(e *entry) (l *lease, unsure bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return e.lease, e.unsure
}

// beginRenewal keeps e from being deleted until endRenewal. It returns false if
// e's time is over or e is being deleted.
func (t *table) beginRenewal(e *entry, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.ending || !now.Before(e.deadline) {
		return false
	}
	e.busy++
	return true
}

// endRenewal allows the delete that beginRenewal has put off. After a successful
// renewal, deadline and rev are the new ones; otherwise they are zero.
func (t *table) endRenewal(e *entry, deadline time.Time, rev int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.busy--
	if !deadline.IsZero() {
		e.deadline, e.seenAt = deadline, max(e.seenAt, rev)
	}
	t.due(e.deadline)
}

// shorten makes e end at deadline, before the time until which it was renewed.
func (t *table) shorten(e *entry, deadline time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.deadline = deadline
	t.due(deadline)
}

// end marks e as being deleted, so that it is not renewed.
func (t *table) end(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.ending = true
}

// ended notes the result of a delete of e. Unless e is certainly gone for good,
// it is deleted once more at its deadline, and repeatedly after that.
func (t *table) ended(e *entry, gone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if gone {
		t.remove(e)
		return
	}
	e.ending = false
	if again := time.Now().Add(eraseAgain); e.deadline.Before(again) {
		e.deadline = again
	}
	t.due(e.deadline)
	if e.held {
		t.losses.add(e)
	}
}

// withdrawing is like end, but for an owner. If this process knows no entry of the
// owner, e is nil. put reports whether the entry's key is known to have been created.
func (t *table) withdrawing(name, owner string) (e *entry, put bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e = t.entries[entryKey{name, owner}]; e == nil {
		return nil, false
	}
	e.ending = true
	return e, e.rev != 0
}

// left returns how long it is until e's deadline.
func (t *table) left(e *entry, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return e.deadline.Sub(now)
}

// verify reads which of entries are still in the store. It returns the entries
// that are gone, and the lowest revision at which it has read one.
func (t *table) verify(ctx context.Context, entries []*entry) (gone map[*entry]bool, rev int64, err error) {
	gone = map[*entry]bool{}
	reads := make([][]*pb.RequestOp, len(entries))
	for i, e := range entries {
		reads[i] = []*pb.RequestOp{txn.Exists(e.key)}
	}
	_, err = t.txns.ReadEach(ctx, reads, func(i int, r txn.Found) {
		if rev == 0 || r.Rev < rev {
			rev = r.Rev
		}
		if kvs := r.Ops[0].GetResponseRange().GetKvs(); len(kvs) == 0 || !entries[i].is(kvs[0], r.Generation) {
			gone[entries[i]] = true
		}
	})
	if err != nil {
		return nil, 0, t.cluster.Wrap(err)
	}
	return gone, rev, nil
}
