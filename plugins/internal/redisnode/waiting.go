package redisnode

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// refreshEvery is how long a place in the queue is taken for alive without
// asking; the scripts keep it a little longer.
const refreshEvery = time.Second

// lostAfter is when a waiter whose owner was neither granted nor withdrawn is
// forgotten.
const lostAfter = 10 * time.Second

// waiting is an owner's place in the queue as this instance knows it. It
// outlives a single wait, so that a wake-up that comes between two waits is
// not lost.
type waiting struct {
	woken  chan struct{} // filled when the owner should ask again
	queued time.Time     // when the store was last known to have it
	epoch  int           // of the connection then
	seen   time.Time
}

// Wait queues r.Owner and returns when it should ask again: turn reports
// whether it was told to. It returns also after most, or when moved is closed.
//
// The queue is in the store. A wake-up is lost with the connection that it comes
// over, and then every waiter is woken, or with the queue, which a waiter enters
// again after refreshEvery.
func (n *Node) Wait(ctx context.Context, r driver.Request, most time.Duration, moved <-chan struct{}) (turn bool, err error) {
	end := time.NewTimer(most)
	defer end.Stop()
	for {
		place := n.Wakeups.enter(r.Owner)
		if !n.Wakeups.stands(place) {
			if free, err := n.enqueue(ctx, r); free || err != nil {
				return free, err
			}
		}
		select {
		case <-place.woken:
			return true, nil
		case <-end.C:
			return false, nil
		case <-moved:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(refreshEvery):
		}
	}
}

// enqueue enters r.Owner into the queue of r.Name, and reports whether that is
// free and it is that owner's turn.
func (n *Node) enqueue(ctx context.Context, r driver.Request) (free bool, err error) {
	epoch, err := n.Wakeups.Ready(ctx)
	if err != nil {
		return false, err
	}
	sent := time.Now()
	reply, err := n.run(ctx, waitScript, r.Name, r.Owner, n.opts.ID)
	if err != nil {
		return false, err
	}
	yes, ok := reply.(int64)
	if !ok {
		return false, decode(r.Name, reply).Err
	}
	n.Wakeups.entered(r.Owner, sent, epoch)
	return yes == 1, nil
}

// enter returns the place of owner.
func (w *Wakeups) enter(owner string) *waiting {
	w.mu.Lock()
	defer w.mu.Unlock()
	wt := w.waiters[owner]
	if wt == nil {
		wt = &waiting{woken: make(chan struct{}, 1)}
		w.waiters[owner] = wt
	}
	wt.seen = time.Now()
	return wt
}

// Leave forgets owner after a grant or a withdrawal.
func (w *Wakeups) Leave(owner string) {
	w.mu.Lock()
	delete(w.waiters, owner)
	w.mu.Unlock()
}

// queued notes that a request sent at the instant sent found owner in the
// queue.
func (w *Wakeups) queued(owner string, sent time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wt := w.waiters[owner]; wt != nil && wt.epoch == w.link.Epoch {
		wt.queued = sent
	}
}

// entered notes that owner was entered into the queue by a request sent at the
// instant sent, over the connection of epoch.
func (w *Wakeups) entered(owner string, sent time.Time, epoch int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wt := w.waiters[owner]; wt != nil {
		wt.queued, wt.epoch = sent, epoch
	}
}

// stands reports whether owner is surely still in the queue: the store said so
// lately, and the connection over which it would be woken is the same since.
// Then a wait needs no request at all, because its turn would have been told.
func (w *Wakeups) stands(wt *waiting) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.link.Up && wt.epoch == w.link.Epoch && time.Since(wt.queued) < refreshEvery
}

// forgetLost drops the places of owners that were never granted or withdrawn.
func (w *Wakeups) forgetLost() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for owner, wt := range w.waiters {
		if time.Since(wt.seen) > lostAfter {
			delete(w.waiters, owner)
		}
	}
}
