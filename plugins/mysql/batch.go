package mysql

import (
	"context"
	"fmt"
	"sync"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/mysql/internal/statement"
)

// Batch sends the operations through the lanes of their kinds, where they
// share statements. Those of one name are done one after the other.
func (b *Backend) Batch(ctx context.Context, ops []driver.Op) []driver.Result {
	results := make([]driver.Result, len(ops))
	byName := make(map[string][]int, len(ops))
	for i, op := range ops {
		byName[op.Name] = append(byName[op.Name], i)
	}
	var apart sync.WaitGroup
	var lanes [3]struct {
		asks []statement.Ask
		at   []int
	}
	for i, op := range ops {
		same := byName[op.Name]
		kind, shared := laneOf(op)
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
				lanes[kind].asks = append(lanes[kind].asks, newAsk(op.Request))
				lanes[kind].at = append(lanes[kind].at, i)
			}
		}
	}
	var sent [3][]*pending
	for kind, l := range []*lane{&b.acquires, &b.renewals, &b.releases} {
		if len(lanes[kind].asks) > 0 {
			sent[kind] = l.send(ctx, lanes[kind].asks...)
		}
	}
	for kind, all := range sent {
		for n, p := range all {
			results[lanes[kind].at[n]] = p.wait()
		}
	}
	apart.Wait()
	return results
}

// laneOf tells which lane op may share a statement in.
func laneOf(op driver.Op) (kind int, shared bool) {
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
