package core

import (
	"context"
	"sync/atomic"
	"time"
)

// An ear is one call of Notify. If the store has no queue, Notify reports the releases of a lock.
type ear struct {
	woken chan struct{} // buffer of 1; gets a value for each callback
	hears atomic.Bool
	over  chan struct{} // closed when Notify has returned err
	err   error
}

// listen starts a call of Notify, which lasts until ctx ends. It returns nil if the client closes.
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

// pause waits until the contender's next request may get the lock, for at most the duration rest.
// It returns when Notify calls the callback. Before the first callback, it also returns after a
// time that grows with each pause. The first callback means that Notify has subscribed. The
// contender must then ask again, because Notify does not report earlier releases.
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
