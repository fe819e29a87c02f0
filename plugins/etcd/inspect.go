package etcd

import (
	"bytes"
	"cmp"
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/txn"
	"github.com/lockbench/lockbench/plugins/etcd/internal/watch"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// Inspect reads the lock through the consensus and, if another process holds it, the remaining TTL.
func (b *Backend) Inspect(ctx context.Context, name string) (driver.Holder, error) {
	v, err := b.readLock(ctx, name)
	if err != nil {
		return driver.Holder{}, err
	}
	return b.holder(ctx, v), nil
}

func (b *Backend) holder(ctx context.Context, v lockState) driver.Holder {
	if v.first == nil {
		return driver.Holder{}
	}
	rec := recordOf(v.first)
	h := driver.Holder{
		Name: b.space.nameOf(string(v.first.Key)), Owner: rec.owner, Token: v.Generation.Token(v.first.CreateRevision),
		Label: rec.label, Value: rec.value, Waiters: max(0, v.entries-1),
	}
	if e := b.table.find(h.Name, h.Owner, h.Token); e != nil {
		h.TTL = max(time.Millisecond, kit.UpToMillis(time.Until(b.table.snapshot(e).deadline)))
		return h
	}
	end, err := b.leases.expiry(ctx, v.first.Lease)
	switch {
	case v.first.Lease == 0: // another program has put the key without a lease
		h.TTL = -1
	case err != nil: // the end of the lease is unknown, so the caller should ask again soon
		h.TTL = time.Second
	default:
		h.TTL = max(time.Millisecond, kit.UpToMillis(time.Until(end.at)))
	}
	return h
}

// The constant unreadable is reported as the owner of an entry that another program has put.
const unreadable = "?"

func recordOf(kv *mvccpb.KeyValue) record {
	rec := decodeRecord(kv.Value)
	rec.owner = cmp.Or(rec.owner, unreadable)
	return rec
}

// entries returns a request that reads the oldest entries of a lock, at most limit, oldest first.
func entries(s space, name string, limit int64) *pb.RequestOp {
	all := s.entries(name)
	return txn.Range(&pb.RangeRequest{
		Key: []byte(all), RangeEnd: txn.Beyond(all), Limit: limit,
		SortOrder: pb.RangeRequest_ASCEND, SortTarget: pb.RangeRequest_CREATE,
	})
}

// lockState is the state of a lock, as read by the request of function entries or by List.
type lockState struct {
	txn.Found
	first   *mvccpb.KeyValue // the holder's entry; nil when the lock is free
	entries int              // number of entries, including the first
}

func lockStateIn(f txn.Found) lockState {
	v := lockState{Found: f}
	if len(f.Ops) > 0 {
		found := f.Ops[0].GetResponseRange()
		if v.entries = int(found.GetCount()); v.entries > 0 {
			v.first = found.Kvs[0]
		}
	}
	return v
}

func (b *Backend) readLock(ctx context.Context, name string) (lockState, error) {
	found, err := b.txns.Read(ctx, entries(b.space, name, 1))
	return lockStateIn(found), b.cluster.Wrap(err)
}

// listPage is the number of keys in one read. One answer has room for this number of keys, even if
// each has a value of the largest size.
const listPage = 48

// List reads the keys in pages. It may miss a change that happens between the reads of two pages.
func (b *Backend) List(ctx context.Context, prefix string, emit func(driver.Holder) bool) error {
	from := b.space.names + prefix
	end := txn.Beyond(from)
	next := []byte(from)
	var open lockState // the lock whose entries are being read
	flush := func() bool { return open.first == nil || emit(b.holder(ctx, open)) }
	for {
		found, err := b.txns.Read(ctx, txn.Range(&pb.RangeRequest{Key: next, RangeEnd: end, Limit: listPage}))
		if err != nil {
			return b.cluster.Wrap(err)
		}
		page := found.Ops[0].GetResponseRange()
		for _, kv := range page.GetKvs() {
			if open.first == nil || b.space.nameOf(string(kv.Key)) != b.space.nameOf(string(open.first.Key)) {
				if !flush() {
					return nil
				}
				open = lockState{Found: found, first: kv}
			}
			if open.entries++; kv.CreateRevision < open.first.CreateRevision {
				open.first = kv
			}
			next = append(kv.Key, 0)
		}
		if !page.GetMore() {
			flush()
			return nil
		}
	}
}

// Break reads who holds the lock. If token is the holder's token, Break deletes the holder's entry.
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	v, err := b.readLock(ctx, name)
	if err != nil {
		return err
	}
	if v.first == nil || v.Generation.Token(v.first.CreateRevision) != token {
		return &driver.NotHeldError{Holder: b.holder(ctx, v)}
	}
	// The table does not get this entry. So if this process has the lock, the table reports the loss.
	s := b.releasing(&entry{name: name, key: string(v.first.Key), rev: v.first.CreateRevision, generation: v.Generation})
	s.OnAnswer = nil
	b.txns.Submit(s)
	return b.finish(ctx, s)
}

// Proclaim replaces the value of the holder's entry. The entry keeps its etcd lease and its token.
func (b *Backend) Proclaim(ctx context.Context, r driver.Request) error {
	e, err := b.known(ctx, r)
	if err != nil {
		return err
	}
	value := record{owner: r.Owner, label: e.label, value: r.Value}.encode()
	s := b.table.change(e, txn.Change(&pb.PutRequest{Key: []byte(e.key), Value: value, IgnoreLease: true}))
	s.Size = len(value)
	s.Done = func() bool {
		v := lockStateIn(s.Found)
		return e.is(v.first, v.Generation) && bytes.Equal(v.first.Value, value)
	}
	b.txns.Submit(s)
	return b.finish(ctx, s)
}

// Observe watches the lock's entries and reads the lock after each change. So it reports
// the present state even if compaction has removed some event, such as the end of a lease.
func (b *Backend) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	f, _ := b.cluster.Follow()
	defer f.Close()
	all := b.space.entries(name)
	defer b.watches.Drop(b.watches.Changes(all, txn.Beyond(all), func(watch.Event) { kit.Wake(f.More()) }))
	defer context.AfterFunc(b.cluster.Context(), func() { kit.Wake(f.More()) })()
	return kit.Follow(ctx, 0, func() (h driver.Holder, _ <-chan struct{}, err error) {
		f.Take() // a notice only causes the next Inspect
		if err = b.cluster.Down(); err == nil {
			h, err = b.Inspect(ctx, name)
		}
		return h, f.More(), err
	}, emit)
}
