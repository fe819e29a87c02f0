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

// entry is a key in the queue of a lock. The owner of the first entry holds the lock, so
// the comments say that this entry "is the lock". table.mu guards the fields that change.
type entry struct {
	name, owner, label string

	key        string
	value      []byte          // what a waiting entry was put with, to recognize it while rev is 0
	rev        int64           // the key's create revision; 0 until it is known
	generation *txn.Generation // the generation that rev belongs to
	lease      *lease          // the lease that the key is on, as far as this process knows
	unsure     bool            // the key may be on another lease, because a move got no answer
	deadline   time.Time       // when this process deletes it
	busy       int             // number of waits, acquires, renewals and moves that delay the delete
	ending     bool            // this process is deleting the entry

	held   bool      // the entry is known to be the lock
	since  time.Time // when held became true
	seenAt int64     // the last revision at which the key was seen
	watch  *watch.Watch
}

func (e *entry) who() entryKey { return entryKey{e.name, e.owner} }

func (e *entry) token() uint64 { return e.generation.Token(e.rev) }

// The is method reports whether kv, which was read in the generation gen, is e's key.
func (e *entry) is(kv *mvccpb.KeyValue, gen *txn.Generation) bool {
	return kv != nil && e.rev != 0 && kv.CreateRevision == e.rev && string(kv.Key) == e.key && gen.Same(e.generation)
}

// short reports whether e is on a waiters' lease. A renewal or an acquire moves e to another lease.
func (e *entry) short() bool { return e.lease.use == waiting }

// pin prevents the delete of e while an operation of e's owner runs. If e is not the lock, pin
// prevents the delete also for entryFor after the operation. The caller holds mu.
func (t *table) pin(e *entry, now time.Time) *entry {
	e.busy++
	e.extend(now)
	return e
}

func (e *entry) extend(now time.Time) {
	if !e.held {
		e.deadline = now.Add(entryFor)
	}
}

func (t *table) unpin(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.busy--
	e.extend(time.Now())
	t.due(e.deadline)
}

// queued returns the entry of an owner that waits, or that was granted the lock in the queue and
// has not renewed it yet. For any other owner, it returns nil. It pins the returned entry.
func (t *table) queued(r driver.Request, now time.Time) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[entryKey{r.Name, r.Owner}]
	if e == nil || e.rev == 0 || e.ending || !e.short() {
		return nil
	}
	return t.pin(e, now)
}

func (t *table) owns(e *entry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.entries[e.who()] == e
}

func (t *table) known(e *entry, gen *txn.Generation, rev int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.generation, e.rev, e.seenAt = gen, rev, rev
}

// hold records that the owner of e holds the lock until deadline. The caller holds mu.
func (t *table) hold(e *entry, deadline time.Time) {
	if old := t.entries[e.who()]; old != e {
		t.remove(old)
		t.entries[e.who()] = e
	}
	e.held, e.since, e.deadline = true, time.Now(), deadline
	t.due(deadline)
	t.watchLater(e)
}

// granted records that e's owner holds the lock, because e is first in the queue. It returns the
// grant, which lasts for the TTL of the waiters' lease, but at most for r.TTL. This time begins
// when the lease's last confirmed keepalive was sent. The result is the zero Grant if more than
// half of this time is over, e may be on another lease, or r.Value is too long for an entry.
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

// moved records that e's key is now on the lease l. If an earlier request to move the key arrives
// late, it does nothing, because it requires the key to be on an earlier lease.
func (t *table) moved(e *entry, l *lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.lease != l {
		e.lease.load.Add(-1)
	}
	e.lease, e.unsure = l, false
}

// notMoved records that e's move to l got no confirmation. If unsure is true, e's key may be on l.
func (t *table) notMoved(e *entry, l *lease, unsure bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.load.Add(-1)
	e.unsure = e.unsure || unsure
}

func (t *table) snapshot(e *entry) entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return *e
}

// The until method sets the time at which the table deletes e.
func (t *table) until(e *entry, deadline time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.deadline = deadline
	t.due(deadline)
}

// change returns a step that does op if the entry e is in the store and the compares more hold.
// Otherwise the step reads the lock's first entry. A caller that does not need this read must
// clear Req.Failure, because many entries with large values do not fit into one answer.
func (t *table) change(e *entry, op *pb.RequestOp, more ...*pb.Compare) *txn.Step {
	return &txn.Step{Name: e.name, In: e.generation, Req: &pb.TxnRequest{
		Compare: append([]*pb.Compare{txn.At(e.key, e.rev)}, more...),
		Success: []*pb.RequestOp{op},
		Failure: []*pb.RequestOp{entries(t.space, e.name, 1)},
	}}
}

// verify reads which of the entries are still in the store. It returns the entries that are gone.
// After an error, this result is incomplete.
func (t *table) verify(ctx context.Context, entries []*entry) (gone map[*entry]bool, err error) {
	gone = map[*entry]bool{}
	reads := make([][]*pb.RequestOp, len(entries))
	for i, e := range entries {
		reads[i] = []*pb.RequestOp{txn.Exists(e.key)}
	}
	_, err = t.txns.ReadEach(ctx, reads, func(i int, r txn.Found) {
		if kvs := r.Ops[0].GetResponseRange().GetKvs(); len(kvs) == 0 || !entries[i].is(kvs[0], r.Generation) {
			gone[entries[i]] = true
		}
	})
	return gone, t.cluster.Wrap(err)
}
