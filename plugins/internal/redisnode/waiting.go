package redisnode

import "time"

// refreshEvery is how long a place in the queue is taken for alive without
// asking; the scripts keep it a little longer.
const refreshEvery = 1000 * time.Millisecond

// lostAfter is when a waiter whose owner was neither granted nor withdrawn is
// forgotten.
const lostAfter = 10 * time.Second

// Waiting is an owner's place in the queue as this instance knows it. It
// outlives a single wait, so that a wake-up that comes between two waits is
// not lost.
type Waiting struct {
	woken  chan struct{}
	queued time.Time // when the store was last known to have it
	epoch  int       // of the connection then
	seen   time.Time
}

// Woken is filled when the owner should ask again.
func (wt *Waiting) Woken() <-chan struct{} { return wt.woken }

// Enter returns the place of owner.
func (w *Wakeups) Enter(owner string) *Waiting {
	w.mu.Lock()
	defer w.mu.Unlock()
	wt := w.waiters[owner]
	if wt == nil {
		wt = &Waiting{woken: make(chan struct{}, 1)}
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

// Queued notes that a request sent at the instant sent found owner in the
// queue.
func (w *Wakeups) Queued(owner string, sent time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wt := w.waiters[owner]; wt != nil && wt.epoch == w.link.Epoch {
		wt.queued = sent
	}
}

// Entered notes that owner was entered into the queue by a request sent at the
// instant sent, over the connection of epoch.
func (w *Wakeups) Entered(owner string, sent time.Time, epoch int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wt := w.waiters[owner]; wt != nil {
		wt.queued, wt.epoch = sent, epoch
	}
}

// Stands reports whether owner is surely still in the queue: the store said so
// lately, and the connection over which it would be woken is the same since.
// Then a wait needs no request at all, because its turn would have been told.
func (w *Wakeups) Stands(wt *Waiting) bool {
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
