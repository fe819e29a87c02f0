package etcd

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockbench/lockbench/core/driver"
)

// Wait watches the one key whose end makes it this owner's turn: the place
// before it, or the lock itself when there is none. A lock that was got from a
// place keeps it as long as it is held, so that this is one watch for each
// grant, and a release wakes one waiter. A Wait that runs out of time leaves its
// watch to the next one of that place.
func (b *Backend) Wait(ctx context.Context, r driver.Request, max time.Duration) error {
	timeout := time.NewTimer(max)
	defer timeout.Stop()
	p, v, err := b.queue(ctx, r)
	if err != nil || v == nil {
		return err
	}
	over := true
	defer func() { b.held.unpark(p, v, over) }()
	if !b.stayQueued(ctx, p) {
		return nil
	}
	beat := time.NewTicker(placeBeat)
	defer beat.Stop()
	for {
		select {
		case e := <-v.events:
			if done, err := b.heard(ctx, e, v); done || err != nil {
				return err
			}
		case <-beat.C:
			if !b.stayQueued(ctx, p) {
				return nil
			}
		case <-timeout.C:
			over = false
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-b.ctx.Done():
			return driver.ErrClosed
		}
	}
}

// view is the watch that a waiter sees its turn by.
type view struct {
	key    string
	seenAt int64 // the store's revision when key was there
	watch  *sub
	events chan event
}

func (b *Backend) watching(key string, seenAt int64) *view {
	v := &view{key: key, seenAt: seenAt, events: make(chan event, 4)}
	v.watch = b.hub.add(key, nil, true, func(e event) {
		if e.changed != 0 && e.changed <= seenAt {
			return // the key's end before this one
		}
		select {
		case v.events <- e:
		default: // there is enough to look at
		}
	})
	return v
}

// heard reports whether e ends the wait: the end of the key does. A watch that
// was opened after the last look may have missed it, as one may that was opened
// before it, for which the data may be gone: then the key is read once more.
func (b *Backend) heard(ctx context.Context, e event, v *view) (done bool, err error) {
	switch {
	case e.changed != 0:
		return true, nil
	case e.opened == 0, e.opened == v.seenAt: // broken, which another opened follows; or known
		return false, nil
	}
	resp, err := b.txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{exists(v.key)}})
	if err != nil {
		return true, b.wrap(err)
	}
	kvs := resp.Responses[0].GetResponseRange().GetKvs()
	return len(kvs) == 0 || kvs[0].CreateRevision > v.seenAt, nil
}

// queue sees to it that the owner has a place, and returns it parked with what
// to look at: nil when it is this owner's turn, and then it is not parked.
func (b *Backend) queue(ctx context.Context, r driver.Request) (*place, *view, error) {
	for try := range 3 {
		p := b.held.touch(r.Name, r.Owner, time.Now())
		if v := b.held.resume(p); v != nil {
			return p, v, nil
		}
		var err error
		if p == nil && time.Since(b.held.began) < 2*placeFor {
			if p, err = b.inherit(ctx, r.Name, r.Owner); err != nil {
				return nil, nil, err
			}
		}
		var before string
		var rev int64
		if p == nil {
			p, before, rev, err = b.enter(ctx, r, try, time.Now())
		} else {
			before, rev, err = b.ahead(ctx, p)
		}
		switch {
		case errors.Is(err, errNoPlace):
			b.held.forget(r.Name, r.Owner)
			continue
		case err != nil || before == "":
			return p, nil, err
		}
		b.held.park(p)
		return p, b.watching(before, rev), nil
	}
	return nil, nil, nil // taken away each time: let core ask
}

// errNoPlace: the place that this process remembers is not in the store, or the
// key of a new one is still in use.
var errNoPlace = errors.New("etcd: place in the queue is gone")

// enter puts a place at the end of the queue, unless the owner is barred. Its
// key is the first free one from number on.
func (b *Backend) enter(ctx context.Context, r driver.Request, number int, now time.Time) (*place, string, int64, error) {
	l, err := b.leases.get(ctx, b.placeTTL())
	if err != nil {
		return nil, "", 0, err
	}
	s, p := b.space, b.held.reserve(r.Name, r.Owner, l, number, now)
	own, bar := s.place(r.Name, p.id), s.bar(r.Name, r.Owner)
	value := record{owner: r.Owner, label: r.Label}.encode()
	st := &step{name: r.Name, size: len(value), twice: true, req: &pb.TxnRequest{
		Compare: []*pb.Compare{absent(own, nil), absent(bar, nil)},
		Success: append([]*pb.RequestOp{put(own, value, l.id)}, ahead(s, r.Name, 0, 2)...),
		Failure: []*pb.RequestOp{read(&pb.RangeRequest{Key: []byte(own)}), exists(bar)},
	}}
	st.settle = func() { b.held.entered(p, st) }
	beat := b.leases.beat(l, now.Add(-placeBeat))
	b.writer.submit(st)
	if err := st.wait(ctx, b); err != nil {
		return nil, "", 0, err
	}
	switch {
	case is(st.err, rpctypes.ErrLeaseNotFound), errors.Is(st.err, errEpoch):
		return nil, "", 0, errNoPlace
	case st.err != nil:
		return nil, "", 0, b.wrap(st.err)
	case !st.ok && st.ops[1].GetResponseRange().GetCount() > 0:
		return nil, "", 0, driver.ErrWithdrawn
	case !st.ok:
		return b.occupied(ctx, r, st)
	}
	if err := b.leases.await(ctx, l, beat); err != nil {
		return nil, "", 0, b.wrap(err)
	}
	return p, nextTo(own, st.ops[1:]), st.rev, nil
}

// occupied goes on from a place that was there when st came to put it: its own,
// because the client sends a request twice if a connection breaks, or an earlier
// one that has not been deleted yet.
func (b *Backend) occupied(ctx context.Context, r driver.Request, st *step) (*place, string, int64, error) {
	kvs := st.ops[0].GetResponseRange().GetKvs()
	if len(kvs) == 0 || ownerOf(kvs[0]) != r.Owner {
		return nil, "", 0, errNoPlace
	}
	p := b.held.remember(kvs[0], st.epoch)
	before, rev, err := b.ahead(ctx, p)
	return p, before, rev, err
}

// ahead reads the newest places of name that were created before rev (0: all),
// and the holder's key.
func ahead(s space, name string, rev int64, limit int64) []*pb.RequestOp {
	places, holds := s.places(name), s.hold(name)
	return []*pb.RequestOp{
		read(&pb.RangeRequest{
			Key: []byte(places), RangeEnd: beyond(places), KeysOnly: true, Limit: limit, MaxCreateRevision: max(0, rev-1),
			SortOrder: pb.RangeRequest_DESCEND, SortTarget: pb.RangeRequest_CREATE,
		}),
		read(&pb.RangeRequest{Key: []byte(holds), RangeEnd: beyond(holds), KeysOnly: true, Limit: 1}),
	}
}

// nextTo picks the key to watch from what ahead read.
func nextTo(own string, ops []*pb.ResponseOp) string {
	kvs := append([]*mvccpb.KeyValue{}, ops[0].GetResponseRange().GetKvs()...)
	kvs = append(kvs, ops[1].GetResponseRange().GetKvs()...)
	for _, kv := range kvs {
		if string(kv.Key) != own {
			return string(kv.Key)
		}
	}
	return ""
}

// ahead reads what is before p now.
func (b *Backend) ahead(ctx context.Context, p *place) (before string, rev int64, err error) {
	own := b.space.place(p.name, p.id)
	resp, err := b.txn(ctx, &pb.TxnRequest{Success: append(ahead(b.space, p.name, p.rev, 1), exists(own))})
	if err != nil {
		return "", 0, b.wrap(err)
	}
	if kvs := resp.Responses[2].GetResponseRange().GetKvs(); len(kvs) == 0 || kvs[0].CreateRevision != p.rev {
		return "", 0, errNoPlace
	}
	return nextTo(own, resp.Responses), resp.Header.Revision, nil
}
