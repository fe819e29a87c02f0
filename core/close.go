package core

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// releasers is how many leases Close releases at the same time.
const releasers = 64

// Close stops campaigns and observers, ends the contexts of the callbacks of
// Lock.Do, Lock.TryDo and Elector.Run and waits until they have returned,
// releases every lease, and closes the backend. Calls that wait end with
// ErrClosed, and so does every call after it. Close may be called more than
// once. It must not be called from such a callback, for which it waits: with
// the callback's ctx, or one made of it, that is an error that wraps
// ErrInvalid, and nothing is closed.
//
// When ctx ends first, callbacks are no longer waited for, and their locks are
// left to expire. A backend that does not answer holds Close up for
// Options.CleanupBudget. The error says what could not be released.
//
// At its end Close waits until Logger and OnEvent were told everything, for at
// most Options.CleanupBudget, and for a moment only when ctx has ended; what
// they were not told by then, they are told afterwards. Called from OnEvent or
// a handler of Logger it does not wait for that.
func (c *Client) Close(ctx context.Context) error {
	if err := c.refuseCallback(ctx); err != nil {
		return c.wrap("close", "", err)
	}
	first := false
	c.closeOnce.Do(func() { first = true })
	if first {
		c.closeErr = c.wrap("close", "", c.shutdown(ctx))
		close(c.closed)
	}
	if !first {
		select {
		case <-c.closed:
		case <-ctx.Done():
			return c.wrap("close", "", ctx.Err())
		}
	}
	c.events.queue.Flush(ctx, c.opts.CleanupBudget)
	return c.closeErr
}

func (c *Client) shutdown(ctx context.Context) error {
	c.closing.Store(true)
	c.endLife()
	err := c.releaseAll(ctx)
	if waitErr := c.drain(ctx); waitErr != nil {
		err = both(err, waitErr)
	}
	err = both(err, c.releaseAll(ctx)) // what was granted or resigned meanwhile
	c.stopSpawning()
	c.abandon()
	c.endWork()
	c.calls.close()
	err = both(err, c.join(ctx))
	return both(err, c.b.Close(ctx))
}

// join waits for the client's goroutines. All end when work does, except one
// that is stuck in a health check or in a backend that ignores its ctx.
func (c *Client) join(ctx context.Context) error {
	joined := make(chan struct{})
	go func() {
		c.background.Wait()
		close(joined)
	}()
	select {
	case <-joined:
		return nil
	case <-ctx.Done():
	}
	// They have been told to end: a ctx that was dead from the start is no
	// reason not to see it.
	timer := time.NewTimer(c.opts.CleanupBudget)
	defer timer.Stop()
	select {
	case <-joined:
		return nil
	case <-timer.C:
		return fmt.Errorf("%w: a goroutine does not return from the backend or a health check", ctx.Err())
	}
}

// drain waits for the public calls under way.
func (c *Client) drain(ctx context.Context) error {
	for c.ops.Load() > 0 {
		select {
		case <-c.idle:
		case <-ctx.Done():
			return fmt.Errorf("%w: %d calls or callbacks have not returned", ctx.Err(), c.ops.Load())
		}
	}
	return nil
}

// releaseAll releases every lease under which no callback works. It goes on
// for as long as the backend answers: one CleanupBudget without a success, or
// after ctx has ended, and the rest is given up.
func (c *Client) releaseAll(ctx context.Context) error {
	leases := c.sched.leaving()
	if len(leases) == 0 {
		return nil
	}
	rctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stuck := time.AfterFunc(c.opts.CleanupBudget, cancel)
	defer stuck.Stop()
	stop := context.AfterFunc(ctx, func() {
		sleep(rctx, c.opts.CleanupBudget)
		cancel()
	})
	defer stop()

	todo := make(chan *Lease)
	failures := make([]error, min(releasers, len(leases)))
	var workers sync.WaitGroup
	for i := range failures {
		workers.Go(func() {
			for l := range todo {
				if err := l.releaseWithin(rctx); err != nil {
					failures[i] = both(failures[i], &Error{Op: "release", Backend: c.name, Name: l.lock.name, Err: err})
					continue
				}
				stuck.Reset(c.opts.CleanupBudget)
			}
		})
	}
	for _, l := range leases {
		todo <- l
	}
	close(todo)
	workers.Wait()
	return firstOf(failures)
}

// firstOf returns the first error, and how many more there are.
func firstOf(errs []error) error {
	var first error
	more := 0
	for _, err := range errs {
		switch {
		case err == nil:
		case first == nil:
			first = err
		default:
			more++
		}
	}
	if more > 0 {
		return fmt.Errorf("%w (and %d more)", first, more)
	}
	return first
}

// errAbandoned ends leases that outlive their client.
var errAbandoned = fmt.Errorf("%w: Close did not wait for it: %w", ErrReleased, ErrClosed)

// abandon ends what is still held without telling the store.
func (c *Client) abandon() {
	s := &c.sched
	s.mu.Lock()
	left := append([]*Lease(nil), s.leases...)
	for _, l := range left {
		s.finish(l, Lost, errAbandoned)
	}
	s.mu.Unlock()
	s.told(left)
}
