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
	// maxSleep is how long the scheduler relies on one timer at most, because
	// timers stand still while the machine is suspended, and leases do not.
	maxSleep = time.Second
	// maxAhead is how much earlier than planned a renewal may be sent, to share a call with
	// a renewal that is due. It may also be at most an eighth of its interval early.
	maxAhead = 100 * time.Millisecond
	// maxBatch is how many renewals are sent in one call at most.
	maxBatch = 256
	// If a lease runs out during a renewal, the silent backend is the cause of its loss. But if
	// that is noticed later by pauseThreshold or more, a pause of the process is the cause.
	pauseThreshold = 500 * time.Millisecond
)

// scheduler renews and ends every live lease of a client in time, with one
// goroutine and one timer. scheduler never waits for the backend: other
// goroutines send the renewals, many in one call (L5).
type scheduler struct {
	c *Client
	// earliest: no lease ends before this instant. It may be too early but never
	// too late. With it, every call can check cheaply for overdue leases.
	earliest atomic.Int64
	// epoch counts how often the plugin has died.
	epoch atomic.Uint64

	mu      sync.Mutex // also guards the mutable fields of every Lease
	leases  leaseHeap
	running bool
	wakeAt  instant // when the goroutine next looks at the leases, unless it is woken before
	empty   bool    // the goroutine found no lease when it last looked, and none was granted since
	wake    chan struct{}
	batches sync.WaitGroup
}

func (s *scheduler) init(c *Client) {
	s.c = c
	s.wake = make(chan struct{}, 1)
	s.wakeAt = never
	s.earliest.Store(int64(never))
}

// add makes l the holder of its name and begins to renew it. l is the lease
// of the grant g to a.
func (s *scheduler) add(l *Lease, a *contender, g grant) {
	s.mu.Lock()
	if before := s.c.queues.granted(l, a); before != nil && before.alive.Load() {
		s.finish(before, Lost, ErrRevoked) // the new grant proves that the store has ended before
	}
	admitted := s.admit(l, g, a.began)
	s.mu.Unlock()
	if !admitted {
		s.notify([]*Lease{l})
	}
}

// admit puts l into the scheduler. It returns false if l was over before its grant was known: the
// plugin has died and its leases with it, or the client has closed without waiting for this call.
func (s *scheduler) admit(l *Lease, g grant, began instant) bool {
	every := l.lock.opts.RenewEvery
	// The first renewal is early by up to a tenth of the interval, so that leases
	// that were granted at the same time are not renewed at the same time for ever.
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

// firstPause returns how long after now a short lease is first renewed: when
// a third of its remaining time has passed, so that a lease that is released
// soon costs no renewal. If two round trips as long as the last would not fit
// into the time left by then, the pause is shorter. The holder need not wait
// for the renewal, because until the lease's deadline the store keeps the
// lock for this owner and token.
func (l *Lease) firstPause(now instant) time.Duration {
	left := l.endAt.sub(now)
	return max(0, min(left/3, left-2*l.c.roundTrip()))
}

func (s *scheduler) enter(l *Lease) {
	l.plan()
	heap.Push(&s.leases, l)
	s.empty = false
	s.watchEnd(l)
	s.rouse(l.next)
}

// plan sets when the scheduler has to look at l.
func (l *Lease) plan() {
	l.next = min(l.endAt, l.maxAt)
	if l.renewal == nil {
		l.next = min(l.next, l.due)
	}
}

// replan moves l to its new place in the heap after its times have changed.
func (s *scheduler) replan(l *Lease) {
	l.plan()
	s.leases.moved(l)
	s.rouse(l.next)
}

// watchEnd lowers s.earliest if necessary, so that sweep does not miss the end of l.
func (s *scheduler) watchEnd(l *Lease) {
	if int64(l.endAt) < s.earliest.Load() {
		s.earliest.Store(int64(l.endAt))
	}
}

// rouse wakes the scheduler's goroutine if it would sleep past next.
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

// run ends and renews leases when they are due, until ctx ends.
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

// step ends the leases that are over, and returns them, the renewals that
// are due, and how long to pause before the next step.
func (s *scheduler) step() (ended []*Lease, batches []*renewalBatch, pause time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.c.clock.now()
	s.c.events.ask(now)
	ended, soon := s.due(now)
	if len(soon) > 0 && soon[0].next <= now { // if not, the timer was early or a lease is new
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
	// After the last lease is gone, the goroutine sleeps once more for maxSleep, and a new
	// lease does not wake it. Without that, each lease would wake it where leases come and go.
	s.empty = len(s.leases) == 0
	s.wakeAt = now.add(maxSleep)
	if !s.empty {
		s.wakeAt = min(s.leases[0].next, s.wakeAt)
	}
	return ended, batches, max(s.wakeAt.sub(now), 0)
}

// due ends the leases whose time is over (ended). It removes from the heap the leases that need
// attention within maxAhead (soon), and returns these in the order of their times.
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

// ahead returns how long before its planned time l may be renewed together with others.
func (l *Lease) ahead() time.Duration { return min(maxAhead, l.lock.opts.RenewEvery/8) }

// group puts the leases that may be renewed now into batches. The leases of a batch have about
// the same time left, because their call may take a third of the shortest time left. A lease
// with a health check is alone in its batch, because the check may take long. The health check
// of a short lease is not called, because the holder may not have started work yet.
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

// sweep ends the leases that are overdue now. sweep is cheap when no lease is overdue.
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
	s.earliest.Store(int64(first)) // after the ends: a caller that reads the old value waits for mu
	s.mu.Unlock()
	s.notify(ended)
}

// overdue returns the cause of the loss of l at its deadline.
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

// because adds the text of detail, the backend's last error, to cause. It does
// not wrap detail, so that errors.Is finds only cause.
func because(cause, detail error) error {
	if detail == nil || errors.Is(detail, cause) {
		return cause
	}
	return fmt.Errorf("%w: %v", cause, detail)
}

// lose ends l as lost for the given cause, unless l has ended already.
func (s *scheduler) lose(l *Lease, cause error) {
	s.mu.Lock()
	alive := l.alive.Load()
	if alive {
		s.finish(l, Lost, cause)
	}
	s.mu.Unlock()
	if alive {
		s.notify([]*Lease{l})
	}
}

// finish ends a live lease: it closes Done, ends the lease's contexts, and removes it
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

// stop emits ev, which reports the end of l. It is the last event of l.
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

// leaseHeap is a heap of leases by next.
type leaseHeap []leaseEntry

// leaseEntry holds a copy of the lease's field next. The heap compares many leases, and to read
// next in each lease would be slow, because most of them are not in the processor's caches.
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

// moved puts l in its place after its field next has changed.
func (h *leaseHeap) moved(l *Lease) {
	(*h)[l.index].next = l.next
	heap.Fix(h, l.index)
}

// reorder puts all leases in their places after the field next of many has changed.
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
