package core

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// releasers is how many leases Close releases at the same time. The number is
// large because a release that hangs takes one of these places until ctx ends, for
// example when a transaction of another program has locked the row of the lock.
const releasers = 1024

// Close stops campaigns and observers, ends the contexts of the callbacks of
// Lock.Do, Lock.TryDo and Elector.Run and waits until they have returned, releases
// every lease, and closes the backend. Calls that wait end with ErrClosed, and so
// does every call after Close. Close may be called more than once. A callback must
// not call Close, because Close would wait for that callback. If Close gets the
// callback's ctx, or a ctx derived from it, Close closes nothing and returns an
// error that wraps ErrInvalid. Healthy and the body of a loop over List must not
// call Close either: Close would wait for them until ctx ends.
//
// When ctx ends, Close no longer waits for callbacks, and leaves their locks
// to expire. While the backend does not answer, Close goes on trying to
// release each lease until the lease has expired, or until
// Options.CleanupBudget has passed after the end of ctx. So pass Close a ctx
// that ends. The error says which lock could not be released.
//
// At its end Close waits until Logger and OnEvent have received every event.
// It waits for at most Options.CleanupBudget, or only a moment if ctx has
// ended; the events that are left are delivered afterwards. If OnEvent or a
// handler of Logger calls Close, Close does not wait for the events.
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
	c.endLifetime()
	rctx, cancel := c.withGrace(ctx, c.opts.CleanupBudget)
	defer cancel()
	failed := c.releaseAll(rctx)
	err := c.drain(ctx)
	failed = append(failed, c.releaseAll(rctx)...) // leases granted or resigned since then
	err = joinErrors(firstOf(failed), err)
	c.stopSpawning()
	c.abandon()
	c.endWork()
	c.calls.close()
	err = joinErrors(err, c.join(ctx))
	return joinErrors(err, c.b.Close(ctx))
}

// join waits for the client's goroutines. All of them end when the context c.work ends, except
// a goroutine that is stuck in a health check, or in a backend that ignores its ctx.
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
	// The goroutines have been told to end, so join waits for CleanupBudget more, even if ctx had
	// ended before the call.
	timer := time.NewTimer(c.opts.CleanupBudget)
	defer timer.Stop()
	select {
	case <-joined:
		return nil
	case <-timer.C:
		return fmt.Errorf("%w: a call of the backend or of a health check has not returned", ctx.Err())
	}
}

// drain waits until no public call is under way, or returns an error when ctx ends first.
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

// releaseAll releases every lease under which no callback works, and continues
// the clean-ups that the janitor has left, until ctx ends. It returns one
// element for each release and clean-up: the error, or nil for success.
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

// finish tries the clean-up k until it succeeds or the grant has expired, and then returns
// nil. If ctx ends first, it returns k.err, the error because of which the clean-up was put off. A
// caller of Release has already received that error; a caller of Run has not.
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

// firstOf returns the first error in failed, with the number of other locks that have an error.
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

// errAbandoned is the cause of leases that are still held when Close stops waiting.
var errAbandoned = fmt.Errorf("%w: Close did not wait for it: %w", ErrReleased, ErrClosed)

// abandon ends the leases that are still held, without telling the store.
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

// callbackOf is the key of a value that marks the context of a callback of client c. Close
// refuses such a context, because a callback that called Close would wait for itself.
type callbackOf struct{ c *Client }

// inCallback returns ctx for a callback of c.
func (c *Client) inCallback(ctx context.Context) context.Context {
	return context.WithValue(ctx, callbackOf{c}, true)
}

// refuseCallback returns an error when ctx belongs to a callback of c.
func (c *Client) refuseCallback(ctx context.Context) error {
	if ctx.Value(callbackOf{c}) == nil {
		return nil
	}
	return fmt.Errorf("%w: Close was called from a callback of Do, TryDo or Run, for which it waits", ErrInvalid)
}

// serve marks l as a lease under which a callback works: Close does not release
// l until the callback has returned. serve returns false, and the callback must
// not start, if l is over already or Close has begun to release l.
func (s *scheduler) serve(l *Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.serving = l.alive.Load() && !l.leaving
	return l.serving
}

// served removes the mark that serve set.
func (s *scheduler) served(l *Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.serving = false
}

// leaving returns the live leases under which no callback works, and marks
// them so that no callback starts under them.
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
