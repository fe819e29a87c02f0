package etcd

import (
	"context"
	"errors"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
	"github.com/lockbench/lockbench/plugins/etcd/internal/txn"
	"github.com/lockbench/lockbench/plugins/etcd/internal/watch"
)

const (
	// entryFor is the time that a waiting entry remains after its owner's last Wait or TryAcquire. It
	// is also the TTL of the waiters' lease, unless the server's shortest TTL is longer. A lock that
	// was granted in the queue ends within this TTL if its owner does not renew it.
	entryFor = 2 * time.Second
	// entryRenewal is the interval between two renewals of the waiters' lease.
	entryRenewal = entryFor / 4
	// maxWaitingValue limits the published value in a waiting entry, in bytes, because a withdrawal
	// reads many entries at a time. A waiter with a longer value gets the lock only by TryAcquire.
	maxWaitingValue = 512
)

func (ls *leases) forWaiting() purpose {
	return purpose{ttl: max(entryFor, ls.shortest()), use: waiting}
}

// Wait watches the entry in front of the waiter's entry, so a release wakes only one waiter. It
// also watches the waiter's own entry, on the same stream, and so already knows if an operator has
// deleted that entry. After a timeout, the watch of the entry in front stays open for a second.
func (b *Backend) Wait(ctx context.Context, r driver.Request, max time.Duration) (driver.Grant, error) {
	limited, cancel := context.WithTimeout(ctx, max)
	defer cancel()
	t := b.table
	e, p, err := t.queue(ctx, r)
	if err != nil || e == nil {
		return driver.Grant{}, err
	}
	many := p != nil && !p.first // when e was put, p was not the lock yet
	t.mu.Lock()
	t.watch(e) // so that a delete of e is reported before a delete of the entry in front
	t.mu.Unlock()
	err = t.turn(limited, e, p)
	t.unpin(e)
	switch {
	case errors.Is(err, errNoEntry):
		t.drop(e)
		return driver.Grant{}, nil
	case err != nil && limited.Err() != nil:
		return driver.Grant{}, ctx.Err()
	case err != nil:
		return driver.Grant{}, err
	}
	g := t.granted(e, r)
	if g.Token != 0 && many {
		t.mark(e)
	}
	return g, nil
}

// The method turn waits until e is the first entry in the queue. At the start, the entry p is in
// front of e.
func (t *table) turn(ctx context.Context, e *entry, p *predecessor) error {
	renewal := time.NewTicker(entryRenewal)
	defer renewal.Stop()
	for p != nil {
		events, w := t.follow(p)
		next, err := p, error(nil)
		for next == p && err == nil {
			if !t.keep(e, entryRenewal) {
				err = errNoEntry
				break
			}
			select {
			case event := <-events:
				next, err = t.passed(ctx, e, p, event)
			case <-renewal.C:
			case <-ctx.Done():
				err = ctx.Err()
			case <-t.cluster.Context().Done():
				err = driver.ErrClosed
			}
		}
		t.watches.Drop(w)
		if errors.Is(err, context.DeadlineExceeded) {
			t.keep(e, 0) // e keeps its place after this call
		}
		if err != nil {
			return err
		}
		p = next
	}
	return nil
}

// mark writes the key of e again, unchanged, after e has become the lock. So when e ends, the key's
// version in the watch event shows that e was the lock. Without a mark, a waiter that came before e
// became the lock would have to ask the store. If only two hosts compete, no mark is needed.
func (t *table) mark(e *entry) {
	s := t.change(e, txn.Change(&pb.PutRequest{Key: []byte(e.key), IgnoreValue: true, IgnoreLease: true}))
	s.Req.Failure = nil
	t.txns.Submit(s)
}

// errNoEntry means that an entry of this process is not in the store, or that the key of a new
// entry is still in use.
var errNoEntry = errors.New("etcd: queue entry is gone")

// keep renews the lease of the waiting entry e, unless the time since its last renewal is at most
// age. It returns false if the lease is retired (no longer renewed).
func (t *table) keep(e *entry, age time.Duration) bool {
	l := t.snapshot(e).lease
	if l.retired.Load() {
		return false
	}
	if k := t.leases.keepalive(l, time.Now().Add(-age)); k != nil {
		t.cluster.Go(func() { _ = t.leases.await(t.cluster.Context(), l, k) }) // the next keep notices a loss
	}
	return true
}

// predecessor is the entry in front of a waiter's entry.
type predecessor struct {
	key    string
	rev    int64 // the revision that created it
	first  bool  // the entry is the lock
	seenAt int64 // the store's revision when the entry was seen
}

func (t *table) follow(p *predecessor) (<-chan watch.Event, *watch.Watch) {
	events, seenAt := make(chan watch.Event, 4), p.seenAt
	return events, t.watches.Deletes(p.key, seenAt, func(e watch.Event) {
		if e.Changed != 0 && e.Changed <= seenAt {
			return // an earlier end of the same key
		}
		select {
		case events <- e:
		default: // the events in the channel already wake the waiter
		}
	})
}

// passed handles an event from the watch of p, the entry in front of e. It returns the entry that
// is now in front of e, or nil if e is now first. Only a holder's key is put twice (see mark). So
// if the deleted key has a version above 1, p was the lock. If the event does not show this, or if
// a watch may have missed the end of p or e, passed asks the store.
func (t *table) passed(ctx context.Context, e *entry, p *predecessor, event watch.Event) (*predecessor, error) {
	own := t.snapshot(e)
	switch {
	case event.Changed != 0 && (p.first || event.Created == p.rev && event.Version > 1) && t.watches.Covers(own.watch, own.seenAt):
		return nil, nil
	case event.Changed == 0 && (event.Opened == 0 || event.Opened == p.seenAt): // broken, or reopened without news
		return p, nil
	}
	now, err := t.ahead(ctx, e)
	if err == nil && now != nil && now.rev == p.rev {
		p.first, p.seenAt = now.first, now.seenAt
		return p, nil
	}
	return now, err
}

// queue makes sure that the owner has an entry in the queue. It returns this entry, pinned (see
// pin), and the entry in front of it, which is nil if the owner's entry is the first. If the owner
// must call TryAcquire, both results are nil.
func (t *table) queue(ctx context.Context, r driver.Request) (*entry, *predecessor, error) {
	for number := 0; number < 3; {
		var p *predecessor
		var err error
		now := time.Now()
		e := t.queued(r, now)
		if e != nil {
			p, err = t.ahead(ctx, e)
		} else {
			e, p, err = t.enter(ctx, r, number, now)
			number++
		}
		if err == nil || e == nil {
			return e, p, err
		}
		t.unpin(e)
		if !errors.Is(err, errNoEntry) {
			return nil, nil, err
		}
		t.drop(e)
	}
	return nil, nil, nil // each time another client had deleted the entry
}

// newWaiting makes the entry of an owner that enters the queue. The entry's key ends in the
// parameter number, or in a higher number if this process already uses that key. No other process
// uses the same keys (see table.self). If the put of the owner's last entry got no answer,
// newWaiting returns that entry. It returns nil if the owner has already called TryAcquire.
func (t *table) newWaiting(r driver.Request, l *lease, number int, now time.Time) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	who := entryKey{r.Name, r.Owner}
	switch e := t.entries[who]; {
	case e == nil, e.ending:
	case e.rev == 0 && e.short():
		l.load.Add(-1)
		return t.pin(e, now)
	default:
		return nil
	}
	rec := record{owner: r.Owner, label: r.Label}
	if len(r.Value) <= maxWaitingValue {
		rec.value = r.Value
	}
	e := &entry{name: r.Name, owner: r.Owner, label: r.Label, value: rec.encode(), lease: l}
	for e.key == "" || t.keys[e.key] != nil {
		e.key = t.space.waiting(r.Name, t.self+strconv.Itoa(number))
		number++
	}
	t.keys[e.key] = e
	t.detach(t.entries[who])
	t.entries[who] = e
	return t.pin(e, now)
}

// enter puts an entry at the end of the queue, unless the owner has a tombstone. It returns the
// entry, pinned even if the put fails, and the entry in front. See newWaiting for number.
func (t *table) enter(ctx context.Context, r driver.Request, number int, now time.Time) (*entry, *predecessor, error) {
	l, err := t.leases.get(ctx, t.leases.forWaiting())
	if err != nil {
		return nil, nil, err
	}
	e := t.newWaiting(r, l, number, now)
	if e == nil {
		l.load.Add(-1)
		return nil, nil, nil
	}
	l = e.lease
	tombstone := t.space.tombstone(r.Name, r.Owner)
	s := &txn.Step{Name: r.Name, Size: len(e.value), Repeatable: true, Req: &pb.TxnRequest{
		Compare: []*pb.Compare{txn.Absent(e.key), txn.Absent(tombstone)},
		Success: []*pb.RequestOp{txn.Put(e.key, e.value, l.id), ahead(t.space, r.Name, 0, 3)},
		Failure: []*pb.RequestOp{txn.Range(&pb.RangeRequest{Key: []byte(e.key)}), txn.Exists(tombstone)},
	}}
	s.Done = func() bool {
		kvs := s.Ops[0].GetResponseRange().GetKvs()
		if len(kvs) == 0 || recordOf(kvs[0]).owner != r.Owner || kvs[0].Lease != l.id {
			return false
		}
		s.Rev = kvs[0].CreateRevision
		return true
	}
	s.OnAnswer = func() {
		switch {
		case s.OK:
			t.known(e, s.Generation, s.Rev)
		case s.Err == nil, t.cluster.Harmless(s.Err):
			t.drop(e)
		}
		if cluster.Is(s.Err, rpctypes.ErrLeaseNotFound) {
			l.retired.Store(true)
		}
	}
	k := t.leases.keepalive(l, now.Add(-entryRenewal))
	if err := t.txns.Do(ctx, s); err != nil {
		return e, nil, err
	}
	switch gone := cluster.Is(s.Err, rpctypes.ErrLeaseNotFound) || errors.Is(s.Err, cluster.ErrDataLost); {
	case s.Err != nil && !gone:
		return e, nil, t.cluster.Wrap(s.Err)
	case s.Err == nil && !s.OK && s.Ops[1].GetResponseRange().GetCount() > 0:
		return e, nil, driver.ErrWithdrawn
	case !s.OK:
		return e, nil, errNoEntry
	}
	if err := t.leases.await(ctx, l, k); err != nil {
		return e, nil, t.cluster.Wrap(err)
	}
	if s.Ops[0].GetResponsePut() == nil { // an earlier try has put the entry
		p, err := t.ahead(ctx, e)
		return e, p, err
	}
	return e, nextTo(e.key, s.Ops[1], s.Rev), nil
}

// ahead returns a request for a lock's newest entries, created before rev if rev is not 0.
func ahead(s space, name string, rev int64, limit int64) *pb.RequestOp {
	all := s.entries(name)
	return txn.Range(&pb.RangeRequest{
		Key: []byte(all), RangeEnd: txn.Beyond(all), KeysOnly: true, Limit: limit, MaxCreateRevision: max(0, rev-1),
		SortOrder: pb.RangeRequest_DESCEND, SortTarget: pb.RangeRequest_CREATE,
	})
}

// nextTo returns the newest entry in op whose key is not own. That entry is the lock if op has no
// older entry. The parameter op is the answer, at revision rev, to the request of function ahead.
func nextTo(own string, op *pb.ResponseOp, rev int64) *predecessor {
	var before *predecessor
	for _, kv := range op.GetResponseRange().GetKvs() {
		switch {
		case string(kv.Key) == own:
		case before == nil:
			before = &predecessor{key: string(kv.Key), rev: kv.CreateRevision, first: true, seenAt: rev}
		default:
			before.first = false
		}
	}
	return before
}

// ahead reads which entry is now in front of the entry e in the queue.
func (t *table) ahead(ctx context.Context, e *entry) (*predecessor, error) {
	found, err := t.txns.Read(ctx, ahead(t.space, e.name, e.rev, 2), txn.Exists(e.key))
	if err != nil {
		return nil, t.cluster.Wrap(err)
	}
	if kvs := found.Ops[1].GetResponseRange().GetKvs(); len(kvs) == 0 || !e.is(kvs[0], found.Generation) {
		return nil, errNoEntry
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e.seenAt = max(e.seenAt, found.Rev)
	return nextTo(e.key, found.Ops[0], found.Rev), nil
}
