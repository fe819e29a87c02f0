package core

import (
	"context"
	"errors"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// Release ends the lease, so that another may be granted the lock (L7). Done
// is closed and Valid is false from its start. It may be called again, by many
// goroutines, and after the lease was lost; once it has returned nil it does
// nothing more.
//
// It goes on for Options.CleanupBudget although ctx has ended, and then
// returns an [*IndeterminateError] if the store has not confirmed it; calling
// it again tries again. An error that satisfies errors.Is(err, ErrNotHeld)
// tells that the lease had been lost before, and as a [*NotHeldError] who
// holds the lock now.
//
// A waiting goroutine of the same host is handed the lock directly where the
// backend can do that.
func (l *Lease) Release(ctx context.Context) error {
	l.c.ops.Add(1) // not begin: a lease may be released while Close waits
	defer l.c.end()
	return l.c.wrap("release", l.lock.name, l.release(ctx))
}

func (l *Lease) release(ctx context.Context) error {
	call := l.c.calls.cleanup(ctx)
	defer call.done()
	return l.releaseWithin(call)
}

// releaseWithin releases l for as long as ctx lives.
func (l *Lease) releaseWithin(ctx context.Context) error {
	f, todo := l.c.sched.beginRelease(l)
	if !todo {
		return nil
	}
	if f != nil { // drain the renewal, but keep half of the budget for the release
		timer := time.NewTimer(l.c.opts.CleanupBudget / 2)
		select {
		case <-f.done:
		case <-timer.C:
		}
		timer.Stop()
	}
	sent := l.c.clock.early()
	err := l.free(ctx)
	return l.c.sched.endRelease(ctx, l, err, l.c.clock.early().sub(sent))
}

// beginRelease ends l for this process. It returns the renewal to wait for,
// and false when there is nothing left to do.
func (s *scheduler) beginRelease(l *Lease) (*flight, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l.freeing {
		if l.freed == nil {
			l.freed = make(chan struct{})
		}
		first := l.freed
		s.mu.Unlock()
		<-first
		s.mu.Lock()
	}
	if l.gone {
		return nil, false
	}
	l.freeing = true
	if l.alive.Load() {
		s.finish(l, l.state, ErrReleased)
	}
	return l.flight, true
}

// endRelease enters the outcome and returns what Release returns.
func (s *scheduler) endRelease(ctx context.Context, l *Lease, err error, took time.Duration) error {
	s.mu.Lock()
	l.freeing = false
	if l.freed != nil {
		close(l.freed)
		l.freed = nil
	}
	kind := EventReleased
	switch {
	case err == nil || l.doubt && errors.Is(err, ErrNotHeld):
		err = nil
		l.gone = true
		if l.state != Lost {
			l.state = Released
		}
	case errors.Is(err, ErrNotHeld):
		l.state, kind = Lost, EventLost
	default:
		l.doubt = l.doubt || !settled(err)
		err = &IndeterminateError{FreeAt: s.c.clock.time(l.freeBy), Err: err}
	}
	if !l.stopped {
		ev := l.event(kind, took, err)
		if kind == EventReleased {
			ev.Context = ctx
		}
		s.stop(l, ev)
	}
	s.mu.Unlock()
	s.told([]*Lease{l})
	return err
}

// free hands l over to a waiting goroutine of this host, or deletes it in the
// store, trying for as long as ctx lives. Without fencing the token is zero and
// the request withdraws the owner, which comes to the same.
func (l *Lease) free(ctx context.Context) error {
	c := l.c
	r := l.request(c.clock.early())
	doubt := false
	if c.handover != nil && r.Keep == 0 && !c.closing.Load() && l.lost() == nil {
		if a := c.queues.claim(l); a != nil {
			err := c.handOver(ctx, r, a)
			if err == nil || errors.Is(err, ErrNotHeld) {
				return err
			}
			doubt = !settled(err)
		}
	}
	pause := backoff{from: minRetry, to: retryTo}
	for {
		err := c.b.Release(ctx, r)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrNotHeld):
			if doubt { // an earlier try has done it
				return nil
			}
			return err
		case permanent(err) || !sleep(ctx, pause.next()):
			return err
		}
		doubt = doubt || !settled(err)
		r = l.request(c.clock.early()) // less is left of AtLeast
	}
}

// handOver replaces the lease of from by one for the claimed contender (K5).
// After an error, from is to be released as if it had not been tried.
func (c *Client) handOver(ctx context.Context, from driver.Request, a *contender) error {
	ttl := a.lock.opts.TTL
	g := grant{epoch: c.sched.epoch.Load(), sent: c.clock.early()}
	var err error
	g.token, err = c.handover.Handover(ctx, from, a.request())
	g.got = c.clock.now()
	switch {
	case err == nil && g.got.sub(g.sent) < lifeOf(ttl):
		l := newLease(a, g)
		c.sched.add(l, g, a.began)
		c.queues.settle(a, l)
		if !l.alive.Load() { // it ended before its queue knew of it
			c.queues.ended(l)
		}
		return nil
	case err == nil || !settled(err) && !errors.Is(err, ErrNotHeld) || errors.Is(err, driver.ErrWithdrawn):
		c.queues.unclaim(a, g.got.add(ttl))
	default:
		c.queues.unclaim(a, 0)
	}
	return err
}

// lost returns the cause if l was lost, nil if it was held until released.
func (l *Lease) lost() error {
	l.c.sched.mu.Lock()
	defer l.c.sched.mu.Unlock()
	if l.state == Lost {
		return l.err
	}
	return nil
}
