package core

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// releasers is the largest number of leases that Close releases at the same time. It is large,
// because a release may hang until ctx ends, for example if another program has locked the row of
// the lock. Close must still release all other leases.
const releasers = 1024

// Close ends campaigns and observers, and cancels the contexts of callbacks of Lock.Do, Lock.TryDo
// and Elector.Run. Every lease is released, but the lease of a callback only after the callback has
// returned. Finally, Close closes the backend. Calls that wait for a lock return ErrClosed. Later
// calls, except Release and Resign, also return ErrClosed. Close may be called more than once. A
// callback must not call Close, because Close would wait for that callback. If Close gets the ctx
// of a callback, or a ctx derived from such a ctx, Close closes nothing and returns an error that
// wraps ErrInvalid. A Healthy function and the body of a loop over List must not call Close either,
// because Close would wait for them until ctx ends.
//
// When ctx ends, Close stops waiting for callbacks. Locks of callbacks that still run stay taken
// until they expire. If the backend does not answer, Close keeps trying to release each lease until
// the lease has expired, or Options.CleanupBudget has passed since ctx ended. So call Close with a
// ctx that ends. The error names one lock that may stay taken, and counts the other such locks.
//
// At its end, Close waits until Logger and OnEvent have received every event. It waits for at most
// Options.CleanupBudget, and for at most 50 ms once ctx has ended. Events that still wait then are
// delivered after Close has returned. If OnEvent or a handler of Logger calls Close, Close does not
// wait for events.
func (c *Client) Close(ctx context.Context) error {
	if ctx.Value(callbackOf{c}) != nil {
		err := fmt.Errorf("%w: Close was called from a callback of Do, TryDo or Run, for which it waits", ErrInvalid)
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
	c.endLifetime()
	rctx, cancel := c.withGrace(ctx, c.opts.CleanupBudget)
	defer cancel()
	failed := c.releaseAll(rctx)
	err := c.drain(ctx)
	failed = append(failed, c.releaseAll(rctx)...) // leases granted or resigned since the first releaseAll
	err = joinErrors(firstOf(failed), err)
	c.spawning.Lock()
	c.ended = true
	c.spawning.Unlock()
	c.abandon()
	c.endWork()
	c.calls.close()
	err = joinErrors(err, c.join(ctx))
	return joinErrors(err, c.b.Close(ctx))
}

// join waits until the client's goroutines have ended. They end when the context c.work ends. A
// health check that hangs, or a backend that ignores its ctx, can keep a goroutine from ending.
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
	// The goroutines have only just been told to end, so wait even if ctx ended long ago.
	timer := time.NewTimer(c.opts.CleanupBudget)
	defer timer.Stop()
	select {
	case <-joined:
		return nil
	case <-timer.C:
		return fmt.Errorf("%w: a call of the backend or of a health check has not returned", ctx.Err())
	}
}

// drain waits until all public methods have returned. If ctx ends first, drain returns an error.
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

// releaseAll releases all leases under which no callback runs. Until ctx ends, it also repeats the
// failed releases and withdrawals that the janitor still has.
func (c *Client) releaseAll(ctx context.Context) []*Error {
	type item struct {
		name    string
		release func() error
	}
	var todo []item
	for _, l := range c.sched.leaving() {
		todo = append(todo, item{l.lock.name, func() error { return l.release(ctx, 0) }})
	}
	for _, k := range c.janitor.all() {
		todo = append(todo, item{k.name, func() error { return c.finish(ctx, k) }})
	}
	failed := make([]*Error, len(todo))
	atOnce(releasers, len(todo), func(i int) {
		if err := todo[i].release(); err != nil {
			failed[i] = &Error{Op: "release", Backend: c.name, Name: todo[i].name, Err: err}
		}
	})
	return failed
}

// finish repeats the clean-up k until it succeeds, or until the grant that k removes has expired.
// If ctx ends first, finish returns k.err, the error of the tries before Close. Release has already
// returned this error to its caller, but Elector.Run has not.
func (c *Client) finish(ctx context.Context, k *cleanup) error {
	pause := backoff{from: minRetry, to: retryTo}
	for c.clock.now() < k.until {
		if ctx.Err() != nil {
			return k.err
		}
		call := c.calls.try(ctx, 0)
		err := k.try(call)
		call.done()
		if err == nil {
			return nil
		}
		sleep(ctx, pause.next())
	}
	return nil
}

// firstOf returns the first error, and adds the number of other locks that have errors.
func firstOf(failed []*Error) error {
	var first *Error
	names := map[string]bool{}
	for _, err := range failed {
		if err == nil {
			continue
		}
		if first == nil {
			first = err
		}
		names[err.Name] = true
	}
	switch len(names) {
	case 0:
		return nil
	case 1:
		return first
	}
	return fmt.Errorf("%w (and %d more)", first, len(names)-1)
}

// errAbandoned is the cause of a lease's loss if Close does not wait for the lease's holder.
var errAbandoned = fmt.Errorf("%w: Close did not wait for it: %w", ErrReleased, ErrClosed)

// abandon ends the remaining leases in this process only. Their locks expire in the store.
func (c *Client) abandon() {
	s := &c.sched
	s.mu.Lock()
	left := slices.Collect(s.leases.all())
	for _, l := range left {
		s.finish(l, Lost, errAbandoned)
	}
	s.mu.Unlock()
	s.notify(left)
}

// callbackOf is the key of a value in each context that client c passes to a callback. Close with
// such a context returns an error, because otherwise Close would wait for its own caller.
type callbackOf struct{ c *Client }

func (c *Client) inCallback(ctx context.Context) context.Context {
	return context.WithValue(ctx, callbackOf{c}, true)
}

// serve records that a callback runs under the lease l, so that Close does not release the lease.
// If serve returns false, the callback must not start.
func (s *scheduler) serve(l *Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.serving = l.alive.Load() && !l.leaving
	return l.serving
}

func (s *scheduler) served(l *Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.serving = false
}

// The leaving method returns the live leases that Close can release. It marks them, so that no
// callback starts under them any more.
func (s *scheduler) leaving() []*Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*Lease
	for l := range s.leases.all() {
		if !l.serving {
			l.leaving = true
			out = append(out, l)
		}
	}
	return out
}
