package etcd

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/txn"
)

// Batch does many operations. Operations on different locks share transactions, and renewals
// share reads and keepalives. Operations on the same lock are done one after the other.
func (b *Backend) Batch(ctx context.Context, ops []driver.Op) []driver.Result {
	results, left := make([]driver.Result, len(ops)), make([]int, len(ops))
	for i := range left {
		left[i] = i
	}
	for len(left) > 0 {
		left = b.do(ctx, ops, left, results)
	}
	return results
}

// do sends the operations whose indexes are in which, all at once, and waits for the results. It
// leaves out, and returns, all operations on a lock after the first.
func (b *Backend) do(ctx context.Context, ops []driver.Op, which []int, results []driver.Result) (left []int) {
	now := time.Now()
	sent := make(map[int]*acquisition, len(which))
	names := make(map[string]bool, len(which))
	var (
		steps    []*txn.Step
		renewals []*renewal
		apart    sync.WaitGroup
	)
	_, err := b.txns.Generation(ctx)
	for _, i := range which {
		if names[ops[i].Name] {
			left = append(left, i)
			continue
		}
		names[ops[i].Name] = true
		if results[i].Err = err; err != nil {
			continue
		}
		switch r := ops[i].Request; ops[i].Kind {
		case driver.OpAcquire:
			a, err := b.acquisition(ctx, r, now)
			if err != nil {
				results[i].Err = err
				continue
			}
			sent[i], steps = a, append(steps, a.step)
		case driver.OpRenew:
			if results[i].Err = b.checkTTL(r.TTL); results[i].Err == nil {
				renewals = append(renewals, &renewal{r: r, err: &results[i].Err})
			}
		case driver.OpRelease:
			apart.Go(func() { results[i].Err = b.Release(ctx, r) })
		case driver.OpWithdraw:
			apart.Go(func() { results[i].Err = b.Withdraw(ctx, r.Name, r.Owner) })
		default:
			results[i].Err = fmt.Errorf("etcd: %w: operation %d", driver.ErrInvalid, ops[i].Kind)
		}
	}
	b.txns.Submit(steps...)
	b.renew(ctx, renewals, now)
	for i, a := range sent {
		results[i] = a.finish(ctx)
	}
	apart.Wait()
	return left
}

// Start begins one operation and does not wait for it; see [driver.Starter]. Start runs no
// goroutine for an acquire or a release that needs only one Txn.
func (b *Backend) Start(ctx context.Context, op driver.Op, done func(driver.Result)) {
	s, finish := b.ready(ctx, op)
	if s == nil {
		b.cluster.Apart(func() { done(b.Batch(ctx, []driver.Op{op})[0]) })
		return
	}
	s.Until = ctx
	s.Then = func() { done(finish(ctx)) }
	b.txns.Submit(s)
}

// ready prepares an op that needs only one Txn. It returns nil for any other op. For example, some
// ops must first read the token base, read the lock to release, or make an etcd lease.
func (b *Backend) ready(ctx context.Context, op driver.Op) (s *txn.Step, finish func(context.Context) driver.Result) {
	switch {
	case b.txns.Known() == nil:
		return nil, nil
	case op.Kind == driver.OpRelease && op.Keep <= 0:
		e := b.table.find(op.Name, op.Owner, op.Token)
		if e == nil {
			return nil, nil
		}
		s := b.releasing(e)
		return s, func(ctx context.Context) driver.Result { return driver.Result{Err: b.finish(ctx, s)} }
	case op.Kind != driver.OpAcquire || b.checkTTL(op.TTL) != nil || ctx.Err() != nil || !b.cluster.Looked():
		return nil, nil
	}
	l := b.leases.atHand(purpose{ttl: op.TTL})
	if l == nil {
		return nil, nil
	}
	a := b.acquiring(op.Request, l, time.Now())
	return a.step, a.finish
}
