package etcd

import (
	"bytes"
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/txn"
	"github.com/lockbench/lockbench/plugins/etcd/internal/watch"
	"github.com/lockbench/lockbench/plugins/internal/wake"
)

// Proclaim is one Txn. The key's lease and create revision stay.
func (b *Backend) Proclaim(ctx context.Context, r driver.Request) error {
	g, err := b.known(ctx, r)
	if err != nil {
		return err
	}
	key := b.space.hold(r.Name)
	value := record{owner: r.Owner, label: g.label, entry: g.entry, value: r.Value}.encode()
	s := &txn.Step{Name: r.Name, In: g.generation, Size: len(value), Req: &pb.TxnRequest{
		Compare: []*pb.Compare{txn.At(key, g.rev)},
		Success: []*pb.RequestOp{txn.Replace(key, value)},
		Failure: look(b.space, r.Name),
	}}
	b.txns.Submit(s)
	return b.finish(ctx, s)
}

// Observe is pushed by a watch of the name's keys, and reads after each push:
// so what it reports is the present, and compaction cannot make it miss an end.
func (b *Backend) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	changed := make(chan struct{}, 1)
	holds := b.space.hold(name)
	defer b.watches.Drop(b.watches.Changes(holds, txn.Beyond(holds), func(watch.Event) { wake.Up(changed) }))
	down := make(chan struct{}, 1)
	defer b.cluster.Follow(down)()
	var last driver.Holder
	for first := true; ; first = false {
		h, err := b.Inspect(ctx, name)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		if first || h.Owner != last.Owner || h.Token != last.Token || !bytes.Equal(h.Value, last.Value) {
			emit(h)
			last = h
		}
		select {
		case <-changed:
		case <-down:
			if _, err := b.cluster.State(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-b.cluster.Context().Done():
			return driver.ErrClosed
		}
	}
}
