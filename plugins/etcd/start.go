package etcd

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// Start does one operation without waiting for it; see [driver.Starter]. What
// takes more than the one Txn of an acquire or a release takes a goroutine.
func (b *Backend) Start(ctx context.Context, op driver.Op, done func(driver.Result)) {
	j, s := b.ready(ctx, op)
	if j == nil {
		if !b.spawn(func() { done(b.one(ctx, op.Kind, op.Request)) }) {
			done(driver.Result{Err: driver.ErrClosed})
		}
		return
	}
	s.ctx = ctx
	s.then = func() { done(j.finish(ctx)) }
	b.writer.submit(s)
}

// ready prepares op if nothing is to be asked before: the epoch is known and a
// lease is at hand.
func (b *Backend) ready(ctx context.Context, op driver.Op) (job, *step) {
	e := b.mint.present.Load()
	switch {
	case e == nil:
		return nil, nil
	case plainRelease(op):
		g := b.held.find(op.Name, op.Owner, op.Token)
		if g == nil {
			return nil, nil
		}
		rel := b.releasing(op.Request, g)
		return rel, rel.step
	case op.Kind != driver.OpAcquire || b.checkTTL(op.TTL) != nil || ctx.Err() != nil:
		return nil, nil
	}
	l := b.leases.atHand(op.TTL)
	if l == nil {
		return nil, nil
	}
	a := b.acquiring(op.Request, l, time.Now())
	return a, a.step
}

// deliver tells the starters of batch what came of it. Granted locks may have to
// wait for the keepalive that they share, and what was refused for more.
func (w *writer) deliver(batch []*step) {
	var granted []*step
	for _, s := range batch {
		switch {
		case s.then == nil:
		case s.err != nil || !s.ok || s.after:
			w.apart(s.then)
		case s.beat.over():
			s.then()
		default:
			granted = append(granted, s)
		}
	}
	if len(granted) == 0 {
		return
	}
	w.apart(func() {
		for _, s := range granted {
			s.then()
		}
	})
}

// apart calls f in a goroutine, or here when the backend is closed: nothing
// waits any more then.
func (w *writer) apart(f func()) {
	if !w.b.spawn(f) {
		f()
	}
}
