package core

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	mrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxSleep bounds the scheduler's sleep while there are leases, because timers stand still
	// while the machine is suspended, but leases expire.
	maxSleep = time.Second
	// maxAhead is the longest time by which a renewal may be sent before it is due, to share a call
	// with a renewal that is due. This time is also at most an eighth of RenewEvery.
	maxAhead = 100 * time.Millisecond
	maxBatch = 256
	// If a lease expires while a renewal waits for its answer, the cause of its loss is
	// ErrUnreachable. But if the scheduler notices the expiry with a delay of pauseThreshold or more,
	// the process was paused. Then the cause is ErrExpired, unless an earlier renewal had failed.
	pauseThreshold = 500 * time.Millisecond
)

// scheduler renews and ends all live leases of a client in time, with one goroutine and one timer.
// That goroutine never waits for the backend. Other goroutines renew many leases in one call (L5).
type scheduler struct {
	c *Client
	// No lease ends before the instant in earliest. So every call can check cheaply whether a lease is
	// overdue.
	earliest atomic.Int64
	// epoch is the number of times that the plugin has died.
	epoch atomic.Uint64

	mu      sync.Mutex // also guards the mutable fields of every Lease
	leases  leaseHeap
	running bool
	wakeAt  instant // when the goroutine next wakes by itself
	empty   bool    // the goroutine found no lease when it last woke, and none was added since
	wake    chan struct{}
	batches sync.WaitGroup
}

func (s *scheduler) init(c *Client) {
	s.c = c
	s.wake = make(chan struct{}, 1)
	s.wakeAt = never
	s.earliest.Store(int64(never))
}

// add records that the lease l, which the contender a got, holds its lock, and begins to renew l.
func (s *scheduler) add(l *Lease, a *contender, g grant) {
	s.mu.Lock()
	if before := s.c.queues.granted(l, a); before != nil && before.alive.Load() {
		s.finish(before, Lost, ErrRevoked) // the new grant proves that the store has ended that lease
	}
	admitted := s.admit(l, g, a.began)
	s.mu.Unlock()
	if !admitted {
		s.notify([]*Lease{l})
	}
}

// admit puts the lease l into the scheduler. It ends l and returns false if the plugin and its
// leases have died, or if the client has closed without waiting for this acquire.
func (s *scheduler) admit(l *Lease, g grant, began instant) bool {
	every := l.lock.opts.RenewEvery
	// The first renewal comes early by a random part of the interval, at most a tenth. Without this
	// shift, leases that were granted at the same time would always be renewed at the same time.
	early := time.Duration(mrand.Int64N(int64(every/10) + 1))
	switch {
	case l.short():
		l.due = g.got.add(l.firstPause(g.got))
	case l.lock.opts.NoRenew:
		l.due = never
	default:
		l.due = g.sent.add(every - early)
	}
	l.known = s.c.events.add(l.event(EventAcquired, g.got.sub(began), nil))
	if !s.running {
		s.running = s.c.spawn(func() { s.run(s.c.work) })
	}
	switch {
	case g.epoch != s.epoch.Load() && !s.c.survives:
		s.finish(l, Lost, ErrPluginDied)
		return false
	case !s.running:
		s.finish(l, Lost, errAbandoned)
		return false
	}
	s.enter(l)
	return true
}

// firstPause returns the time from now until the first renewal of a short lease. (The store has
// granted a short lease without a request, for less than the TTL.) The pause is a third of the
// lease's remaining time, so that a lease that is released soon costs no renewal. The pause is
// shorter if that is necessary to leave time for two round trips, each as long as the last one. The
// lease of a leader usually lasts long, so it is renewed at once.
func (l *Lease) firstPause(now instant) time.Duration {
	if l.lock.election {
		return 0
	}
	left := l.endAt.sub(now)
	return max(0, min(left/3, left-2*l.c.roundTrip()))
}

func (s *scheduler) enter(l *Lease) {
	l.plan()
	heap.Push(&s.leases, l)
	s.empty = false
	if int64(l.endAt) < s.earliest.Load() { // so that the sweep method ends l then
		s.earliest.Store(int64(l.endAt))
	}
	s.rouse(l.next)
}

// plan sets l.next, the time at which the scheduler must renew or end l.
func (l *Lease) plan() {
	l.next = min(l.endAt, l.maxAt)
	if l.renewal == nil {
		l.next = min(l.next, l.due)
	}
}

// Call replan after the times of the lease l have changed.
func (s *scheduler) replan(l *Lease) {
	l.plan()
	s.leases.moved(l)
	s.rouse(l.next)
}

// rouse wakes the scheduler's goroutine if that goroutine would sleep beyond the instant next.
func (s *scheduler) rouse(next instant) {
	if next >= s.wakeAt {
		return
	}
	s.wakeAt = next
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *scheduler) run(ctx context.Context) {
	defer s.batches.Wait()
	timer := time.NewTimer(maxSleep)
	defer timer.Stop()
	for {
		ended, batches, pause := s.step()
		s.notify(ended)
		for _, f := range batches {
			s.batches.Go(func() { s.renew(ctx, f) })
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.wake:
		}
	}
}

// step ends overdue leases. It returns the renewals to send, and the pause before the next step.
func (s *scheduler) step() (ended []*Lease, batches []*renewalBatch, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.c.clock.now()
	s.c.events.ask(now)
	ended, soon := s.due(now)
	if len(soon) > 0 && soon[0].next <= now { // otherwise, the timer was early or a lease is new
		batches = s.group(soon, now)
	}
	for _, l := range soon {
		l.plan()
		heap.Push(&s.leases, l)
	}
	if len(s.leases) == 0 && s.empty {
		s.wakeAt = never
		return ended, batches, time.Hour
	}
	// After the last lease has ended, the goroutine sleeps once more for maxSleep. A new lease wakes
	// the goroutine only if the lease is due before that sleep ends. So brief leases do not wake it.
	s.empty = len(s.leases) == 0
	s.wakeAt = now.add(maxSleep)
	if !s.empty {
		s.wakeAt = min(s.leases[0].next, s.wakeAt)
	}
	return ended, batches, max(s.wakeAt.sub(now), 0)
}

// The due method ends overdue leases. It also removes from the heap the leases that must be renewed
// or ended within maxAhead, and returns them in soon, ordered by their next field.
func (s *scheduler) due(now instant) (ended, soon []*Lease) {
	for len(s.leases) > 0 && s.leases[0].next <= now.add(maxAhead) {
		l := s.leases[0].lease
		switch {
		case l.endAt <= now:
			s.finish(l, Lost, l.overdue(now))
			ended = append(ended, l)
		case l.maxAt <= now:
			s.finish(l, Lost, ErrMaxHold)
			ended = append(ended, l)
		default:
			heap.Pop(&s.leases)
			soon = append(soon, l)
		}
	}
	return ended, soon
}

func (l *Lease) ahead() time.Duration { return min(maxAhead, l.lock.opts.RenewEvery/8) }

// group puts the leases that may be renewed now into batches. The leases of a batch have about the
// same time left, because the lease that ends first limits the time of their renewal. A lease with
// a health check is alone in its batch, because the check may take long. A short lease is renewed
// without its health check, because the holder may not have started work yet.
func (s *scheduler) group(leases []*Lease, now instant) []*renewalBatch {
	var batches []*renewalBatch
	open := map[int]*renewalBatch{}
	for _, l := range leases {
		if l.renewal != nil || l.due > now.add(l.ahead()) {
			continue
		}
		left, healthy := l.endAt.sub(now), l.lock.opts.Healthy
		class := bits.Len64(uint64(left))
		if l.short() {
			healthy, class = nil, -class
		}
		f := open[class]
		if f == nil || len(f.leases) == maxBatch || healthy != nil {
			f = &renewalBatch{left: left, short: l.short(), healthy: healthy, done: make(chan struct{})}
			batches = append(batches, f)
			if healthy == nil {
				open[class] = f
			}
		}
		f.leases = append(f.leases, l)
		f.left = min(f.left, left)
		l.renewal, l.again = f, false
	}
	return batches
}

// sweep ends the leases that are overdue at the instant now. It is cheap if no lease is overdue.
func (s *scheduler) sweep(now instant) {
	if now < instant(s.earliest.Load()) {
		return
	}
	s.mu.Lock()
	var ended []*Lease
	first := never
	for l := range s.leases.all() {
		if l.endAt > now {
			first = min(first, l.endAt)
			continue
		}
		ended = append(ended, l)
	}
	for _, l := range ended {
		s.finish(l, Lost, l.overdue(now))
	}
	s.earliest.Store(int64(first)) // stored last: a sweep that still reads the old value waits for mu
	s.mu.Unlock()
	s.notify(ended)
}

// The overdue method returns why the lease l was lost when its time endAt passed.
func (l *Lease) overdue(now instant) error {
	switch {
	case l.renewal != nil && l.renewal.asking:
		return fmt.Errorf("%w: the health check gave no answer", ErrUnhealthy)
	case l.suspectErr != nil:
		return because(ErrUnreachable, l.suspectErr)
	case l.renewal != nil && now.sub(l.endAt) < pauseThreshold:
		return fmt.Errorf("%w: a renewal got no answer", ErrUnreachable)
	}
	return ErrExpired
}

// The because function returns an error that wraps cause and adds the text of detail, the backend's
// last error. The result does not wrap detail, so errors.Is finds only cause.
func because(cause, detail error) error {
	if detail == nil || errors.Is(detail, cause) {
		return cause
	}
	return fmt.Errorf("%w: %v", cause, detail)
}

// finish ends the live lease l. It closes Done, ends the contexts of l, and removes l
// from the heap. The caller must hold mu, and must call notify after it has unlocked mu.
func (s *scheduler) finish(l *Lease, state State, cause error) {
	l.alive.Store(false)
	l.state, l.err = state, cause
	if l.index >= 0 {
		heap.Remove(&s.leases, l.index)
	}
	close(l.done)
	for _, e := range l.cancels {
		e.end(cause)
	}
	l.cancels = nil
	if state == Lost {
		s.stop(l, l.event(EventLost, 0, cause))
	}
}

// The stop method emits the event ev, which is the last event of the lease l and reports its end.
func (s *scheduler) stop(l *Lease, ev Event) {
	l.stopped, l.ctx = true, nil
	s.c.events.addEnd(ev, l.known)
}

// notify wakes the contenders that wait for the end of these leases.
func (s *scheduler) notify(ended []*Lease) {
	for _, l := range ended {
		s.c.queues.ended(l)
	}
}

// leaseHeap is a heap of leases, ordered by their next field.
type leaseHeap []leaseEntry

// leaseEntry holds a copy of the lease's next field. The heap compares many leases, and most leases
// are not in the CPU's caches, so reading their fields would be slow.
type leaseEntry struct {
	next  instant
	lease *Lease
}

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].next < h[j].next }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].lease.index, h[j].lease.index = i, j
}

// Push implements heap.Interface.
func (h *leaseHeap) Push(x any) {
	l := x.(*Lease)
	l.index = len(*h)
	*h = append(*h, leaseEntry{l.next, l})
}

// Pop implements heap.Interface.
func (h *leaseHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last].lease
	(*h)[last] = leaseEntry{}
	*h = (*h)[:last]
	l.index = -1
	return l
}

func (h *leaseHeap) moved(l *Lease) {
	(*h)[l.index].next = l.next
	heap.Fix(h, l.index)
}

func (h *leaseHeap) reorder() {
	for i := range *h {
		(*h)[i].next = (*h)[i].lease.next
	}
	heap.Init(h)
}

// all yields the leases in no particular order.
func (h leaseHeap) all() iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		for i := range h {
			if !yield(h[i].lease) {
				return
			}
		}
	}
}
