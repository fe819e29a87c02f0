package redlock

import (
	"context"
	"fmt"

	"github.com/lockbench/lockbench/core/driver"
)

// Batch does many operations, each node in as few scripts as possible; see
// driver.Batcher.
func (b *Backend) Batch(ctx context.Context, ops []driver.Op) []driver.Result {
	results := make([]driver.Result, len(ops))
	tasks := make([]task, 0, len(ops))
	index := make([]int, 0, len(ops))
	for i, op := range ops {
		t, err := b.taskOf(op)
		if err != nil {
			results[i].Err = err
			continue
		}
		tasks = append(tasks, t)
		index = append(index, i)
	}
	if len(tasks) == 0 {
		return results
	}
	for j, res := range b.do(ctx, tasks...) {
		results[index[j]] = res
	}
	return results
}

func (b *Backend) taskOf(op driver.Op) (task, error) {
	switch op.Kind {
	case driver.OpAcquire:
		return b.acquisition(op.Request), b.checkTTL("acquire", op.Request)
	case driver.OpRenew:
		return b.renewal(op.Request), b.checkTTL("renew", op.Request)
	case driver.OpRelease:
		return b.ending(op.Request), nil
	}
	return nil, fmt.Errorf("redlock: %w: operation %d of a batch", driver.ErrInvalid, op.Kind)
}
