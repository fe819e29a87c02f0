package etcd

import (
	"bytes"
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/lockbench/lockbench/core/driver"
)

// Proclaim is one Txn. The key's lease and create revision stay.
func (b *Backend) Proclaim(ctx context.Context, r driver.Request) error {
	g, err := b.known(ctx, r)
	if err != nil {
		return err
	}
	key := b.space.hold(r.Name)
	value := record{owner: r.Owner, label: g.label, place: g.place, value: r.Value}.encode()
	s := &step{name: r.Name, in: g.epoch, size: len(value), req: &pb.TxnRequest{
		Compare: []*pb.Compare{at(key, g.rev)},
		Success: []*pb.RequestOp{publish(key, value)},
		Failure: look(b.space, r.Name),
	}}
	b.writer.submit(s)
	if err := s.wait(ctx, b); err != nil {
		return err
	}
	return b.outcome(ctx, s)
}

// Observe is pushed by a watch of the name's keys, and reads after each push:
// so what it tells is the present, and compaction cannot make it miss an end.
func (b *Backend) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	changed := make(chan struct{}, 1)
	holds := b.space.hold(name)
	watch := b.hub.add(holds, beyond(holds), false, func(event) { signal(changed) })
	defer b.hub.drop(watch)
	down := make(chan struct{}, 1)
	b.health.follow(down, true)
	defer b.health.follow(down, false)
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
			if _, err := b.health.state(); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-b.ctx.Done():
			return driver.ErrClosed
		}
	}
}
