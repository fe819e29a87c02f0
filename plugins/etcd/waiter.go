package etcd

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
	"github.com/lockbench/lockbench/plugins/etcd/internal/txn"
	"github.com/lockbench/lockbench/plugins/etcd/internal/watch"
)

// Wait watches the one key whose end makes it this owner's turn: the queue entry
// before it, or the lock itself when there is none. A lock that was got from an
// entry keeps that as long as it is held, so that this is one watch for each
// grant, and a release wakes one waiter. A Wait that runs out of time leaves to the
// next one of that entry which key that is, and its watch stays open so long.
func (b *Backend) Wait(ctx context.Context, r driver.Request, max time.Duration) (driver.Grant, error) {
	return driver.Grant{}, b.wait(ctx, r, max)
}

func (b *Backend) wait(ctx context.Context, r driver.Request, max time.Duration) error {
	timeout := time.NewTimer(max)
	defer timeout.Stop()
	t := b.table
	e, before, err := t.queue(ctx, r)
	if err != nil || before == nil {
		return err
	}
	events, w := t.follow(before)
	over := true
	defer func() {
		t.watches.Drop(w)
		t.pauseEntry(e, before, over)
	}()
	if !t.renewEntry(ctx, e) {
		return nil
	}
	renewal := time.NewTicker(entryRenewal)
	defer renewal.Stop()
	for {
		select {
		case event := <-events:
			if done, err := t.ended(ctx, before, event); done || err != nil {
				return err
			}
		case <-renewal.C:
			if !t.renewEntry(ctx, e) {
				return nil
			}
		case <-timeout.C:
			over = false
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-b.cluster.Context().Done():
			return driver.ErrClosed
		}
	}
}

// predecessor is the key whose end makes it a waiter's turn.
type predecessor struct {
	key    string
	seenAt int64 // the store's revision when key was there
}

// follow begins to watch p.
func (t *table) follow(p *predecessor) (<-chan watch.Event, *watch.Watch) {
	events, seenAt := make(chan watch.Event, 4), p.seenAt
	return events, t.watches.Deletes(p.key, seenAt, func(e watch.Event) {
		if e.Changed != 0 && e.Changed <= seenAt {
			return // the key's end before this one
		}
		select {
		case events <- e:
		default: // there is enough to look at
		}
	})
}

// ended reports whether e is the end of p's key. A watch that was opened after
// the last look may have missed it, as one may that was opened before it, for
// which the data may be gone: then the key is read once more.
func (t *table) ended(ctx context.Context, p *predecessor, e watch.Event) (bool, error) {
	switch {
	case e.Changed != 0:
		return true, nil
	case e.Opened == 0, e.Opened == p.seenAt: // broken, which another opened follows; or known
		return false, nil
	}
	resp, _, err := t.txns.Read(ctx, txn.Exists(p.key))
	if err != nil {
		return true, t.cluster.Wrap(err)
	}
	kvs := resp.Responses[0].GetResponseRange().GetKvs()
	if len(kvs) == 0 || kvs[0].CreateRevision > p.seenAt {
		return true, nil
	}
	p.seenAt = resp.Header.Revision
	return false, nil
}

// queue sees to it that the owner has an entry, and returns it pinned, with what
// is before it: nil when it is this owner's turn, and then it is not pinned.
func (t *table) queue(ctx context.Context, r driver.Request) (*entry, *predecessor, error) {
	for try := range 3 {
		e := t.touchEntry(r.Name, r.Owner, time.Now())
		if p := t.resumeEntry(e); p != nil {
			return e, p, nil
		}
		var err error
		if e == nil {
			if e, err = t.inheritEntry(ctx, r.Name, r.Owner); err != nil {
				return nil, nil, err
			}
		}
		var p *predecessor
		if e == nil {
			e, p, err = t.enter(ctx, r, try, time.Now())
		} else {
			p, err = t.ahead(ctx, e)
		}
		switch {
		case errors.Is(err, errNoEntry):
			t.forgetEntry(r.Name, r.Owner)
			continue
		case err != nil || p == nil:
			return e, nil, err
		}
		t.pin(e)
		return e, p, nil
	}
	return nil, nil, nil // taken away each time: let core ask
}

// errNoEntry: the entry that this process remembers is not in the store, or the
// key of a new one is still in use.
var errNoEntry = errors.New("etcd: queue entry is gone")

// enter puts an entry at the end of the queue, unless the owner has a tombstone.
// Its key is the first free one from number on.
func (t *table) enter(ctx context.Context, r driver.Request, number int, now time.Time) (*entry, *predecessor, error) {
	l, err := t.leases.get(ctx, t.forEntries())
	if err != nil {
		return nil, nil, err
	}
	s, e := t.space, t.newEntry(r.Name, r.Owner, l, number, now)
	own, tombstone := s.entry(r.Name, e.id), s.tombstone(r.Name, r.Owner)
	value := record{owner: r.Owner, label: r.Label}.encode()
	st := &txn.Step{Name: r.Name, Size: len(value), Twice: true, Req: &pb.TxnRequest{
		Compare: []*pb.Compare{txn.Absent(own), txn.Absent(tombstone)},
		Success: append([]*pb.RequestOp{txn.Put(own, value, l.id)}, ahead(s, r.Name, 0, 2)...),
		Failure: []*pb.RequestOp{txn.Range(&pb.RangeRequest{Key: []byte(own)}), txn.Exists(tombstone)},
	}}
	tried := false // a try before has put it
	st.Done = func() bool {
		kvs := st.Ops[0].GetResponseRange().GetKvs()
		if tried = len(kvs) > 0 && ownerOf(kvs[0]) == r.Owner && kvs[0].Lease == l.id; tried {
			st.Rev = kvs[0].CreateRevision
		}
		return tried
	}
	st.OnAnswer = func() { t.entered(e, st) }
	k := t.leases.keepalive(l, now.Add(-entryRenewal))
	if err := t.txns.Do(ctx, st); err != nil {
		return nil, nil, err
	}
	switch {
	case cluster.Is(st.Err, rpctypes.ErrLeaseNotFound), errors.Is(st.Err, cluster.ErrDataLost):
		return nil, nil, errNoEntry
	case st.Err != nil:
		return nil, nil, t.cluster.Wrap(st.Err)
	case !st.OK && st.Ops[1].GetResponseRange().GetCount() > 0:
		return nil, nil, driver.ErrWithdrawn
	case !st.OK:
		return t.occupied(ctx, r, st)
	}
	if err := t.leases.await(ctx, l, k); err != nil {
		return nil, nil, t.cluster.Wrap(err)
	}
	if tried {
		p, err := t.ahead(ctx, e)
		return e, p, err
	}
	return e, nextTo(own, st.Ops[1:], st.Rev), nil
}

// occupied goes on from an entry that was there when st came to put it: its own,
// because the client sends a request twice if a connection breaks, or an earlier
// one that has not been deleted yet.
func (t *table) occupied(ctx context.Context, r driver.Request, st *txn.Step) (*entry, *predecessor, error) {
	kvs := st.Ops[0].GetResponseRange().GetKvs()
	if len(kvs) == 0 || ownerOf(kvs[0]) != r.Owner {
		return nil, nil, errNoEntry
	}
	e := t.adoptEntry(kvs[0], st.Generation)
	p, err := t.ahead(ctx, e)
	return e, p, err
}

// ahead reads the newest entries of name that were created before rev (0: all),
// and the holder's key.
func ahead(s space, name string, rev int64, limit int64) []*pb.RequestOp {
	all, holds := s.entries(name), s.hold(name)
	return []*pb.RequestOp{
		txn.Range(&pb.RangeRequest{
			Key: []byte(all), RangeEnd: txn.Beyond(all), KeysOnly: true, Limit: limit, MaxCreateRevision: max(0, rev-1),
			SortOrder: pb.RangeRequest_DESCEND, SortTarget: pb.RangeRequest_CREATE,
		}),
		txn.Range(&pb.RangeRequest{Key: []byte(holds), RangeEnd: txn.Beyond(holds), KeysOnly: true, Limit: 1}),
	}
}

// nextTo picks the key to watch from what ahead read at rev.
func nextTo(own string, ops []*pb.ResponseOp, rev int64) *predecessor {
	for _, op := range ops[:2] {
		for _, kv := range op.GetResponseRange().GetKvs() {
			if string(kv.Key) != own {
				return &predecessor{key: string(kv.Key), seenAt: rev}
			}
		}
	}
	return nil
}

// ahead reads what is before e now.
func (t *table) ahead(ctx context.Context, e *entry) (*predecessor, error) {
	own := t.space.entry(e.name, e.id)
	resp, _, err := t.txns.Read(ctx, append(ahead(t.space, e.name, e.rev, 1), txn.Exists(own))...)
	if err != nil {
		return nil, t.cluster.Wrap(err)
	}
	if kvs := resp.Responses[2].GetResponseRange().GetKvs(); len(kvs) == 0 || kvs[0].CreateRevision != e.rev {
		return nil, errNoEntry
	}
	return nextTo(own, resp.Responses, resp.Header.Revision), nil
}
