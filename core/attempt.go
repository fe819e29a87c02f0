package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// grant is the answer to a successful acquire.
type grant struct {
	token     uint64
	sent, got instant       // sent: the request, or the sign of life before the store's own grant
	span      time.Duration // for which the store keeps it from sent at least
	epoch     uint64        // of the plugin when the call began
}

// ask asks the store once for a's owner.
func (a *contender) ask(ctx context.Context) (*Lease, error) {
	c := a.lock.c
	g := grant{epoch: c.sched.epoch.Load(), span: a.lock.opts.TTL, sent: c.clock.now()} // not early: an idle client has not seen a suspend
	call := c.calls.begin(ctx, driver.AcquireBudget(a.lock.opts.TTL))
	var err error
	g.token, err = c.b.TryAcquire(call, a.request())
	call.done()
	now := c.clock.early()
	c.took(now.sub(g.sent))
	if errors.Is(err, ErrHeld) {
		c.queues.want(a.lock.name, now.add(wantedFor))
	}
	return a.answered(ctx, g, err)
}

// answered makes of the store's answer to g's request a lease, or sets a.answer
// and a.expiresBy.
func (a *contender) answered(ctx context.Context, g grant, err error) (*Lease, error) {
	c := a.lock.c
	g.got = c.clock.now()
	c.heard(err)
	if err == nil {
		if err = a.usable(ctx, g); err == nil {
			l := newLease(a, a.owner, g)
			l.extend(g.span, g.sent, g.got)
			c.sched.add(l, a, g)
			return l, nil
		}
	}
	a.answer = err
	if !definite(err) {
		a.expiresBy = g.got.add(a.lock.opts.TTL)
	}
	if errors.Is(err, driver.ErrWithdrawn) {
		a.owner, a.queued = newOwner(), false
	}
	return nil, err
}

// usable refuses a grant that nobody waits for any more, or that came too
// late: counted from sending, its time may be over.
func (a *contender) usable(ctx context.Context, g grant) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if a.lock.c.closing.Load() {
		return fmt.Errorf("%w: client is closing", context.Canceled)
	}
	if took := g.got.sub(g.sent); took >= lifeOf(g.span) {
		return fmt.Errorf("%w: grant took %v of %v", ErrUnavailable, took, g.span)
	}
	return nil
}

// clean withdraws an owner whose acquire has an unknown outcome, before another
// owner asks (K3). It need not succeed once such a grant would be over.
func (a *contender) clean(ctx context.Context) error {
	c := a.lock.c
	if a.expiresBy == 0 {
		return nil
	}
	call := c.calls.begin(ctx, c.opts.CleanupBudget)
	err := c.withdraw(call, a.request())
	call.done()
	if err != nil && c.clock.now() < a.expiresBy {
		return err
	}
	a.owner, a.queued, a.expiresBy = newOwner(), false, 0
	return nil
}

// giveUp undoes what a did in the store and returns err, or an
// IndeterminateError around it when that could not be confirmed (K3).
func (a *contender) giveUp(ctx context.Context, err error) error {
	if a.expiresBy == 0 && !a.queued {
		return err
	}
	c := a.lock.c
	call := c.calls.cleanup(ctx)
	defer call.done()
	pause := backoff{from: retryFrom, to: retryTo}
	for {
		failed := c.withdraw(call, a.request())
		if failed == nil {
			return err
		}
		if !c.permanent(failed) && sleep(call, pause.next()) {
			continue
		}
		if a.expiresBy == 0 { // only a place in the store's queue, which ends by itself
			return err
		}
		r := a.request()
		err = &IndeterminateError{
			FreeAt: c.clock.time(a.expiresBy),
			Err:    fmt.Errorf("%w; withdrawing it: %w", err, failed),
		}
		c.janitor.add(&cleanup{
			name: r.Name, until: a.expiresBy, err: err,
			try: func(ctx context.Context) error { return c.withdraw(ctx, r) },
		})
		return err
	}
}

// withdraw asks the store once to undo whatever r's owner did or may still do.
func (c *Client) withdraw(ctx context.Context, r driver.Request) error {
	return c.b.Withdraw(ctx, r.Name, r.Owner)
}
