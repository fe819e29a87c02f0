package core

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	// maxAsk is how long the head of a queue waits at most before it asks the
	// store again (K4).
	maxAsk = time.Second
	// Pauses between asking a store that cannot wake waiters.
	pollFrom, pollTo = 5 * time.Millisecond, 250 * time.Millisecond
	// Pauses while the backend does not answer.
	retryFrom, retryTo = 20 * time.Millisecond, 500 * time.Millisecond
)

// await pauses between two questions to the store: until the store wakes this
// owner, or until the refusal is over.
func (a *contender) await(ctx context.Context) error {
	c := a.lock.c
	var held *HeldError
	switch {
	case a.answer == nil:
		return nil
	case !errors.As(a.answer, &held):
		sleep(ctx, a.retry.next())
		return nil
	}
	a.retry.reset()
	if c.queues.holder(a.lock.name) != nil {
		return nil // this host holds it: turn waits for that lease's end
	}
	rest := maxAsk
	if ttl := held.Holder.TTL; ttl > 0 {
		rest = min(ttl+time.Millisecond, maxAsk)
	}
	if c.waiter == nil {
		sleep(ctx, min(a.poll.next(), rest))
		return nil
	}
	return a.wait(ctx, rest)
}

// wait waits in the store's queue for at most rest.
func (a *contender) wait(ctx context.Context, rest time.Duration) error {
	c := a.lock.c
	a.queued = true
	began := c.clock.early()
	wctx, cancel := context.WithTimeout(ctx, rest+maxAsk) // a hung backend must not hold up K4
	err := c.waiter.Wait(wctx, a.request(), rest)
	cancel()
	switch {
	case ctx.Err() != nil:
		return nil // contend sees it
	case c.permanent(err):
		return err
	case err != nil:
		a.answer = err
		sleep(ctx, a.retry.next())
	case c.clock.early().sub(began) >= time.Millisecond:
		a.poll.reset()
	default: // woken for nothing: do not spin
		sleep(ctx, min(a.poll.next()-pollFrom, rest))
	}
	return nil
}

// backoff makes growing pauses, each a random part of the last half.
type backoff struct{ from, to, last time.Duration }

func (b *backoff) next() time.Duration {
	b.last = min(max(b.from, 2*b.last), b.to)
	return b.last - time.Duration(rand.Int64N(int64(b.last/2)))
}

func (b *backoff) reset() { b.last = 0 }
