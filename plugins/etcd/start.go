package etcd

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/txn"
)

// Start does one operation without waiting for it; see [driver.Starter]. What
// takes more than the one Txn of an acquire or a release takes a goroutine.
func (b *Backend) Start(ctx context.Context, op driver.Op, done func(driver.Result)) {
	finish, s := b.ready(ctx, op)
	if s == nil {
		if !b.cluster.Go(func() { done(b.one(ctx, op.Kind, op.Request)) }) {
			done(driver.Result{Err: driver.ErrClosed})
		}
		return
	}
	s.Until = ctx
	s.Then = func() { done(finish(ctx)) }
	b.txns.Submit(s)
}

// ready prepares op if nothing is to be asked before: the generation is known and
// a lease is at hand.
func (b *Backend) ready(ctx context.Context, op driver.Op) (finish, *txn.Step) {
	switch {
	case b.txns.Known() == nil:
		return nil, nil
	case plainRelease(op):
		g := b.table.find(op.Name, op.Owner, op.Token)
		if g == nil {
			return nil, nil
		}
		s := b.releasing(op.Request, g)
		return b.finishing(s), s
	case op.Kind != driver.OpAcquire || b.checkTTL(op.TTL) != nil || ctx.Err() != nil:
		return nil, nil
	}
	l := b.leases.atHand(op.TTL)
	if l == nil {
		return nil, nil
	}
	a := b.acquiring(op.Request, l, time.Now())
	return a.finish, a.step
}
