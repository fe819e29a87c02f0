package core

import (
	"context"
	"sync/atomic"
	"time"
)

// ear is one Notify call of the driver, for a contender that has no queue to wait in.
type ear struct {
	woken chan struct{} // 1 slot
	hears atomic.Bool
	over  chan struct{} // closed when Notify has ended, because of err
	err   error
}

// listen begins to hear of releases, until ctx ends. It returns nil if the client closes.
func (a *contender) listen(ctx context.Context) *ear {
	e := &ear{woken: make(chan struct{}, 1), over: make(chan struct{})}
	c, name := a.lock.c, a.lock.name
	if !c.spawn(func() {
		e.err = c.b.notifier.Notify(ctx, name, func() {
			e.hears.Store(true)
			select {
			case e.woken <- struct{}{}:
			default:
			}
		})
		close(e.over)
	}) {
		return nil
	}
	return e
}

// pause waits until asking again may help, for at most rest: until a release
// is reported, or for a growing time while none would be. A release between
// the refused question and the first call of emit would be missed, so that
// first call wakes a too. The contender asks after each wake-up, so needless
// wake-ups cannot make it ask without a bound.
func (a *contender) pause(ctx context.Context, rest time.Duration) {
	if a.ear == nil && a.lock.c.b.notifier != nil {
		a.ear = a.listen(ctx)
	}
	if a.ear == nil {
		sleep(ctx, min(a.poll.next(), rest))
		return
	}
	hears := a.ear.hears.Load()
	if !hears {
		rest = min(a.poll.next(), rest)
	}
	again := time.NewTimer(rest)
	defer again.Stop()
	select {
	case <-a.ear.woken:
	case <-again.C:
		if hears {
			a.poll.reset()
		}
	case <-ctx.Done():
	case <-a.ear.over:
		if ctx.Err() == nil {
			a.tellWaitFailed(a.ear.err)
			a.ear = nil
			sleep(ctx, min(a.poll.next(), rest))
		}
	}
}
