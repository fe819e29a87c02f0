package core

import (
	"context"
	"slices"
)

// handOver ends l and gives what it holds in the store to the goroutine of this
// host that has waited longest (K5). It returns false, and has done nothing,
// when l is to be released in the store instead; see [queues].
func (s *scheduler) handOver(ctx context.Context, l *Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.c.clock.now()
	if !l.alive.Load() || l.state != Held || l.leaving || s.c.closing.Load() || l.maxAt <= now || now < l.keepBy {
		return false
	}
	if left := instant(l.deadline.Load()).sub(now); left < l.span/2 {
		return false
	}
	return s.c.queues.pass(l, now, func(a *contender) *Lease {
		next := l.successor(a, now)
		s.finish(l, Released, ErrReleased)
		ev := l.event(EventReleased, 0, nil)
		ev.Context = ctx
		s.stop(l, ev)
		l.gone = true
		next.known = s.c.events.add(next.event(EventAcquired, now.sub(a.began), nil))
		s.enter(next)
		return next
	})
}

// successor makes the lease that a has after l. What the store has confirmed
// for l counts for it, and so does the renewal that is on its way. Where none
// is, it is renewed at once.
func (l *Lease) successor(a *contender, now instant) *Lease {
	g := grant{token: l.token, sent: now, got: now}
	if g.token != 0 {
		g.token++
	}
	next := newLease(a, l.owner, g)
	next.deadline.Store(l.deadline.Load())
	next.span, next.endAt, next.expiresBy = l.span, l.endAt, l.expiresBy
	confirmed := l.endAt.add(-lifeOf(l.span))
	next.due = min(l.due, confirmed.add(a.lock.opts.RenewEvery))
	if now.sub(confirmed) >= minStreakTime {
		next.due = now
	}
	if f := l.renewal; f != nil && f.sent {
		f.leases[slices.Index(f.leases, l)] = next
		next.renewal, next.again = f, l.again
	}
	return next
}
