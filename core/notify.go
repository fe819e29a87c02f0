package core

import (
	"context"
	"sync/atomic"
	"time"
)

// ear is one call of Notify, for a contender whose store has no queue to wait in.
type ear struct {
	woken chan struct{} // 1 slot
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

// pause waits until it may help to ask the store again, for at most rest. pause
// ends when a release is reported or, as long as Notify has not called back yet,
// after a pause that grows. Notify would miss a release between the refusal and
// its first callback, so the first callback also wakes a. The contender asks once
// after each wake-up, so a burst of callbacks cannot make it ask without limit.
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
