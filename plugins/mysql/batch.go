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
	var batchers [3]struct {
		asks []statement.Ask
		at   []int
	}
	for i, op := range ops {
		same := byName[op.Name]
		kind, shared := batcherOf(op)
		switch {
		case same[0] != i: // goes with the first of its name
		case len(same) > 1 || !shared:
			apart.Go(func() {
				for _, j := range same {
					results[j] = b.single(ctx, ops[j])
				}
			})
		default:
			if results[i].Err = ready(ctx, op.Request); results[i].Err == nil {
				batchers[kind].asks = append(batchers[kind].asks, newAsk(op.Request))
				batchers[kind].at = append(batchers[kind].at, i)
			}
		}
	}
	var sent [3][]*pending
	for kind, l := range []*batcher{&b.acquires, &b.renewals, &b.releases} {
		if len(batchers[kind].asks) > 0 {
			sent[kind] = l.send(ctx, batchers[kind].asks...)
		}
	}
	for kind, all := range sent {
		for n, p := range all {
			results[batchers[kind].at[n]] = p.wait()
		}
	}
	apart.Wait()
	return results
}

// batcherOf returns which batcher op may share a statement in.
func batcherOf(op driver.Op) (kind int, shared bool) {
	switch op.Kind {
	case driver.OpAcquire:
		return 0, true
	case driver.OpRenew:
		return 1, true
	case driver.OpRelease:
		return 2, op.Token != 0 && op.Keep <= 0
	}
	return 0, false
}

func (b *Backend) single(ctx context.Context, op driver.Op) (r driver.Result) {
	switch op.Kind {
	case driver.OpAcquire:
		r.Token, r.Err = b.TryAcquire(ctx, op.Request)
	case driver.OpRenew:
		r.Err = b.Renew(ctx, op.Request)
	case driver.OpRelease:
		r.Err = b.Release(ctx, op.Request)
	default:
		r.Err = fmt.Errorf("mysql: %w: operation %d", driver.ErrInvalid, op.Kind)
	}
	return r
}
