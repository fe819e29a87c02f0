package load

import (
	"context"

	"github.com/lockbench/lockbench/internal/results"
)

// Caller is one worker that acquires and releases one lock and records each
// attempt. It is used by one goroutine.
type Caller struct {
	Client, Name int32
	Clock        Clock
	Lock         Lock

	// Attempts are those so far; that of the lease in hand is the last one.
	Attempts []results.Attempt
	// Err is the first error of an operation, other than the caller's ctx.
	Err error
}

// Acquire waits for the lock. The second result is false after an error.
func (c *Caller) Acquire(ctx context.Context) (Lease, bool) {
	a := results.Attempt{Client: c.Client, Name: c.Name, Asked: c.Clock.Now()}
	lease, err := c.Lock.Acquire(ctx)
	a.Answered = c.Clock.Now()
	a.Outcome = OutcomeOf(err)
	switch {
	case err == nil:
		a.Token = lease.Token()
		if t, ok := lease.(Timed); ok {
			a.Asked, a.Answered = t.Granted()
		}
	case ctx.Err() != nil: // not every library says so in its error
		a.Outcome = results.Cancelled
	}
	c.Attempts = append(c.Attempts, a)
	c.note(ctx, err)
	return lease, err == nil
}

// Release gives back the lease that Acquire has just returned, and reports
// whether the store agreed.
func (c *Caller) Release(ctx context.Context, lease Lease) bool {
	a := &c.Attempts[len(c.Attempts)-1]
	a.Ended = c.Clock.Now()
	err := lease.Release(ctx)
	a.Done = c.Clock.Now()
	if t, ok := lease.(Timed); ok && err == nil {
		a.Ended, a.Done = t.Released()
	}
	a.End = results.EndReleased
	if err != nil {
		a.End = results.EndReleaseFailed
	}
	c.note(ctx, err)
	return err == nil
}

// Renew renews the lease and returns how long it took in nanoseconds.
func (c *Caller) Renew(ctx context.Context, lease Lease) (took int64, ok bool) {
	sent := c.Clock.Now()
	err := lease.Renew(ctx)
	took = c.Clock.Now() - sent
	c.note(ctx, err)
	return took, err == nil
}

func (c *Caller) note(ctx context.Context, err error) {
	if err != nil && c.Err == nil && ctx.Err() == nil {
		c.Err = err
	}
}
