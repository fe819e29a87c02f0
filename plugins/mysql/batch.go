package mysql

import (
	"context"
	"fmt"
	"sync"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/mysql/internal/statement"
)

// Batch sends the operations through the batchers of their kinds, where they
// share statements. Those of one name are done one after the other.
func (b *Backend) Batch(ctx context.Context, ops []driver.Op) []driver.Result {
	results := make([]driver.Result, len(ops))
	byName := make(map[string][]int, len(ops))
	for i, op := range ops {
		byName[op.Name] = append(byName[op.Name], i)
	}
	var apart sync.WaitGroup
	sharing := map[*batcher][]int{} // indices of ops
	for i, op := range ops {
		same := byName[op.Name]
		l := b.batcherOf(op)
		switch {
		case same[0] != i: // goes with the first of its name
		case len(same) > 1 || l == nil:
			apart.Go(func() {
				for _, j := range same {
					results[j] = b.single(ctx, ops[j])
				}
			})
		default:
			if results[i].Err = ready(ctx, op.Request); results[i].Err == nil {
				sharing[l] = append(sharing[l], i)
			}
		}
	}
	sent := make([]*pending, len(ops)) // nil for what shares none
	for l, indices := range sharing {
		shared := make([]statement.Operation, len(indices))
		for n, i := range indices {
			shared[n] = newOperation(ops[i].Request)
		}
		for n, p := range l.send(ctx, shared...) {
			sent[indices[n]] = p
		}
	}
	for i, p := range sent {
		if p != nil {
			results[i] = p.wait()
		}
	}
	apart.Wait()
	return results
}

// batcherOf returns the batcher in which op may share a statement, nil if in none.
func (b *Backend) batcherOf(op driver.Op) *batcher {
	switch {
	case op.Kind == driver.OpAcquire:
		return b.acquirer(op.Name)
	case op.Kind == driver.OpRenew:
		return &b.renewals
	case op.Kind == driver.OpRelease && op.Keep > 0:
		return &b.shortens
	case op.Kind == driver.OpRelease:
		return &b.releases
	}
	return nil
}

func (b *Backend) single(ctx context.Context, op driver.Op) driver.Result {
	switch l := b.batcherOf(op); {
	case l != nil:
		return l.one(ctx, op.Request)
	case op.Kind == driver.OpWithdraw:
		return driver.Result{Err: b.Withdraw(ctx, op.Name, op.Owner)}
	}
	return driver.Result{Err: fmt.Errorf("mysql: %w: operation %d", driver.ErrInvalid, op.Kind)}
}
