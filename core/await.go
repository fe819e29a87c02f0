package core

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

const (
	// maxAsk is how long the head of a queue waits at most before it asks the
	// store again (K4).
	maxAsk = time.Second
	// A wait and its refusal within spuriousWake and two round trips to the store,
	// each counted as at most maxRTT, was a spurious wake-up.
	spuriousWake = 2 * time.Millisecond
	maxRTT       = 50 * time.Millisecond
	// Pauses between asking a store that cannot wake waiters, or fails to.
	pollFrom, pollTo = 5 * time.Millisecond, 250 * time.Millisecond
	// Pauses while the backend does not answer.
	retryFrom, retryTo = 20 * time.Millisecond, 500 * time.Millisecond
	// wantedFor is how long a lock that another host had is taken to be wanted there.
	wantedFor = time.Second
	// tellEvery is how often a client says that waiting fails.
	tellEvery = time.Minute
)

// await pauses between two questions to the store: until the refusal is over, or
// until the store wakes this owner. Then it has asked already.
func (a *contender) await(ctx context.Context) (lease *Lease, asked bool) {
	c := a.lock.c
	var held *HeldError
	switch {
	case a.answer == nil:
		return nil, false
	case !errors.As(a.answer, &held):
		sleep(ctx, a.retry.next())
		return nil, false
	}
	a.retry.reset()
	if c.queues.holder(a.lock.name) != nil {
		return nil, false // this host holds it: turn waits for that lease's end
	}
	rest := maxAsk
	if ttl := held.Holder.TTL; ttl > 0 {
		rest = min(ttl+time.Millisecond, maxAsk)
	}
	if c.b.waiter == nil {
		sleep(ctx, min(a.poll.next(), rest))
		return nil, false
	}
	return a.wait(ctx, rest)
}

// wait waits in the store's queue for at most rest, and asks the store then. It
// returns nil, and a.answer says why, unless that was granted. When the wait
// failed it has not asked.
func (a *contender) wait(ctx context.Context, rest time.Duration) (lease *Lease, asked bool) {
	c := a.lock.c
	a.queued = true
	before := a.answer
	g := grant{epoch: c.sched.epoch.Load()}
	began := c.clock.early()
	wctx, cancel := context.WithTimeout(ctx, driver.WaitAcquireBudget(a.lock.opts.TTL, rest))
	token, waited, span, err := c.b.WaitAcquire(wctx, a.request(), rest)
	cancel()
	g.token, g.sent, g.span = token, began.add(waited), a.lock.opts.TTL
	if span > 0 {
		g.span = min(span, g.span)
	}
	if err == nil && span > 0 && a.doubts(ctx, g, began) {
		lease, err = a.ask(ctx)
	} else {
		lease, err = a.answered(ctx, g, err)
	}
	ended := c.clock.early()
	spurious := ended.sub(began) < spuriousWake+2*min(c.roundTrip(), maxRTT)
	switch {
	case err == nil:
		if !spurious {
			c.queues.want(a.lock.name, ended.add(wantedFor))
		}
		return lease, true
	case ctx.Err() != nil:
		a.answer = before // what was waited for
	case errors.Is(err, driver.ErrNotSent) && !c.permanent(err):
		a.answer = before
		a.waitFailed(err)
		sleep(ctx, min(a.poll.next(), rest))
		return nil, false
	case !errors.Is(err, ErrHeld):
	case !spurious:
		a.poll.reset()
	default: // woken for nothing: do not spin
		sleep(ctx, min(a.poll.next()-pollFrom, rest))
	}
	return nil, true
}

// doubts reports whether the store's own grant g, which a wait has brought that began
// at began, is a question as a hint is: its renewal might come too late, or it is
// counted back over a suspend, of which the plugin's clock knows nothing.
func (a *contender) doubts(ctx context.Context, g grant, began instant) bool {
	c := a.lock.c
	left := lifeOf(g.span) - c.clock.now().sub(g.sent)
	return ctx.Err() == nil && (left < 2*c.roundTrip() || g.sent < began && c.clock.sleptSince(g.sent))
}

// waitFailed says so, once in tellEvery for all waiters of the client. What a
// plugin or store that was lost meanwhile explains is not told: that fails once.
func (a *contender) waitFailed(err error) {
	c := a.lock.c
	now, at := c.clock.early(), c.waitsTold.Load()
	if !refused(err) && a.poll.last < 4*pollFrom || int64(now) < at || !c.waitsTold.CompareAndSwap(at, int64(now.add(tellEvery))) {
		return
	}
	c.events.add(a.event(EventWaitFailed, c.wrap("wait", a.lock.name, err)))
}

// backoff makes growing pauses, each a random part of the last half.
type backoff struct{ from, to, last time.Duration }

func (b *backoff) next() time.Duration {
	b.last = min(max(b.from, 2*b.last), b.to)
	return b.last - time.Duration(rand.Int64N(int64(b.last/2)))
}

func (b *backoff) reset() { b.last = 0 }
