package etcd

import (
	"bytes"
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/txn"
	"github.com/lockbench/lockbench/plugins/etcd/internal/watch"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// Proclaim is one Txn. The entry's lease and create revision stay.
func (b *Backend) Proclaim(ctx context.Context, r driver.Request) error {
	e, err := b.known(ctx, r)
	if err != nil {
		return err
	}
	value := record{owner: r.Owner, label: e.label, value: r.Value}.encode()
	s := &txn.Step{Name: r.Name, In: e.generation, Size: len(value), Req: &pb.TxnRequest{
		Compare: []*pb.Compare{txn.At(e.key, e.rev)},
		Success: []*pb.RequestOp{txn.Replace(e.key, value)},
		Failure: []*pb.RequestOp{entries(b.space, r.Name, 1)},
	}}
	s.Done = func() bool {
		v := lockStateIn(s.Generation, s.Ops)
		return e.is(v.first, v.generation) && bytes.Equal(v.first.Value, value)
	}
	b.txns.Submit(s)
	return b.finish(ctx, s)
}

// Observe is pushed by a watch of the name's entries, and reads after each push:
// so what it reports is the present, and compaction cannot make it miss an end.
func (b *Backend) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	told := make(chan struct{}, 1)
	all := b.space.entries(name)
	defer b.watches.Drop(b.watches.Changes(all, txn.Beyond(all), func(watch.Event) { kit.Wake(told) }))
	defer b.cluster.Follow(told)()
	defer context.AfterFunc(b.cluster.Context(), func() { kit.Wake(told) })()
	return kit.Follow(ctx, 0, func() (h driver.Holder, _ <-chan struct{}, err error) {
		if _, err = b.cluster.State(); err == nil {
			h, err = b.Inspect(ctx, name)
		}
		return h, told, err
	}, emit)
}
