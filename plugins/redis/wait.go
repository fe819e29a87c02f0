package redis

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// refreshEvery keeps a place in the queue alive during a long wait.
const refreshEvery = time.Second

// Wait queues r.Owner and returns when it should ask again; see driver.Waiter.
//
// The queue is in the store, so that a wake-up can be lost only together with
// the connection that it comes over, and then every waiter is woken.
func (b *Backend) Wait(ctx context.Context, r driver.Request, most time.Duration) error {
	place := b.wakeups.Enter(r.Owner)
	end := time.NewTimer(most)
	defer end.Stop()
	for {
		if !b.wakeups.Stands(place) {
			free, err := b.enqueue(ctx, r)
			if err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				return wrap("wait for", r.Name, err)
			}
			if free {
				return nil
			}
		}
		refresh := time.NewTimer(refreshEvery)
		select {
		case <-place.Woken():
			refresh.Stop()
			return nil
		case <-end.C:
			refresh.Stop()
			return nil
		case <-ctx.Done():
			refresh.Stop()
			return ctx.Err()
		case <-refresh.C:
		}
	}
}

func (b *Backend) enqueue(ctx context.Context, r driver.Request) (free bool, err error) {
	epoch, err := b.wakeups.Ready(ctx)
	if err != nil {
		return false, err
	}
	sent := time.Now()
	if free, err = b.node.Enqueue(ctx, r, b.wakeups.ID()); err == nil {
		b.wakeups.Entered(r.Owner, sent, epoch)
	}
	return free, err
}
