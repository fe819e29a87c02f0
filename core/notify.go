package core

import (
	"context"
	"sync/atomic"
	"time"
)

// ear is one Notify of the driver, for a contender that has no queue to wait in.
type ear struct {
	woken chan struct{} // 1 slot
	hears atomic.Bool
	over  chan struct{} // closed when it hears no more, because of err
	err   error
}

// listen begins to hear of releases, until ctx ends. It is nil where the client closes.
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

// pause waits for at most rest until asking again may help: until a release is heard of,
// or, while none would be, for a growing time. The question that was refused before it
// hears does not count, as the lock may have been released in between: hence the first
// call of emit wakes too. Each wake-up is followed by a question, which bounds how often
// one that is told too much asks.
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
