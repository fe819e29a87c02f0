package core

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/internal/cancellation"
)

// grant describes what the store granted to a successful acquire.
type grant struct {
	token     uint64
	sent, got instant       // times of the request and of its answer; for a grant without a request, see driver.Grant.Sent
	span      time.Duration // the store keeps the grant for at least this time after the instant sent
	epoch     uint64        // value of scheduler.epoch when the call began
}

func (a *contender) ask(ctx context.Context) (*Lease, error) {
	c := a.lock.c
	g := grant{epoch: c.sched.epoch.Load(), span: a.lock.opts.TTL, sent: c.clock.now()} // clock.now notices a suspend that happened while the client was idle; clock.early does not
	call := c.calls.begin(ctx, acquireBudget(a.lock.opts.TTL))
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

// acquireBudget returns the time limit of an acquire request: the TTL, but at least 10 ms and at
// most 3 s. A grant that takes longer than the TTL to arrive has already expired.
func acquireBudget(ttl time.Duration) time.Duration {
	return min(max(ttl, 10*time.Millisecond), 3*time.Second)
}

// The answered method returns a lease for the grant g if err is nil and the usable method accepts
// g. Otherwise, it sets a.answer, and a.expiresBy if the store may have granted the lock.
func (a *contender) answered(ctx context.Context, g grant, err error) (*Lease, error) {
	c := a.lock.c
	g.got = c.clock.now()
	c.noteServed(err)
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

// usable refuses a grant if its lease, which begins when the request is sent, is already over.
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

// The clean method withdraws the owner id a.owner and makes a new owner id (rule K3) if the outcome
// of the last acquire is unknown. It does the same if the plugin process that put a.owner into the
// store's queue has died. If clean returns an error, the store may still have a grant for a.owner.
func (a *contender) clean(ctx context.Context) error {
	c := a.lock.c
	if lost := a.queued && a.epoch != c.sched.epoch.Load(); a.expiresBy == 0 && !lost {
		return nil
	}
	call := c.calls.begin(ctx, c.opts.CleanupBudget)
	err := c.b.Withdraw(call, a.lock.name, a.owner)
	call.done()
	if err != nil && c.clock.now() < a.expiresBy {
		return err
	}
	a.owner, a.queued, a.expiresBy = newOwner(), false, 0
	return nil
}

// giveUp withdraws the owner id a.owner and returns err. If the withdrawal fails and the store may
// have granted the lock, giveUp returns an IndeterminateError that wraps err (rule K3). Some stores
// may have granted it to the owner's place in the queue, which then also delays other callers.
func (a *contender) giveUp(ctx context.Context, err error) error {
	if a.expiresBy == 0 && !a.queued {
		return err
	}
	c := a.lock.c
	call := c.calls.cleanup(ctx)
	defer call.done()
	pause := backoff{from: retryFrom, to: retryTo}
	for {
		failed := c.b.Withdraw(call, a.lock.name, a.owner)
		if failed == nil {
			return err
		}
		if !c.permanent(failed) && sleep(call, pause.next()) {
			continue
		}
		if a.expiresBy == 0 {
			span := c.b.Properties().FirstSpan
			if span == 0 { // the store has no grant, and a place in its queue expires
				return err
			}
			a.expiresBy = c.clock.now().add(max(span, farSpan))
		}
		name, owner := a.lock.name, a.owner
		err = &IndeterminateError{
			FreeAt: c.clock.time(a.expiresBy),
			Err:    fmt.Errorf("%w; withdrawing it: %w", err, failed),
		}
		c.janitor.add(&cleanup{
			name: name, until: a.expiresBy, err: err,
			try: func(ctx context.Context) error { return c.b.Withdraw(ctx, name, owner) },
		})
		return err
	}
}

const (
	// farSpan is the longest time for which a store that is far away grants a lock to a waiter in its
	// queue without a TryAcquire; see driver.Properties.FirstSpan.
	farSpan = 2 * time.Second
	// grace is the client's longest wait for an answer after the caller has given up. Most answers
	// arrive in that time. If the answer is a refusal, the client need not withdraw the request.
	grace = 50 * time.Millisecond
	// tick is the interval between checks of the calls' deadlines. Calls end at most one tick late.
	tick = 10 * time.Millisecond
)

// The type named calls cancels each call to the backend at that call's deadline. After the caller's
// context has ended, a call may go on only for the time in the call's rest field.
//
// Note: context.WithTimeout and context.AfterFunc could end the calls with less code. But their
// timers took half of the processor time of an uncontended acquire, although they hardly ever fire.
// Instead, one goroutine checks all calls every tick, and sleeps while no call is under way.
type calls struct {
	c *Client

	mu      sync.Mutex
	first   *call
	recent  bool // a call began since the last run of the round method
	running bool // the goroutine that checks the calls was started
	parked  bool // the goroutine waits for a signal on wake
	over    bool // the client has closed: a new call is cancelled at once
	wake    chan struct{}
}

// The took method records d, the duration of the last request that did not wait in the store.
func (c *Client) took(d time.Duration) { c.rtt.Store(int64(d)) }

func (c *Client) roundTrip() time.Duration { return time.Duration(c.rtt.Load()) }

func (cs *calls) init(c *Client) {
	cs.c = c
	cs.wake = make(chan struct{}, 1)
}

// begin returns a context for one call to the backend. The context ends after the duration budget,
// or when the duration grace has passed since ctx ended or Close began. The caller must call done.
func (cs *calls) begin(ctx context.Context, budget time.Duration) *call {
	return cs.enter(&call{caller: ctx, rest: grace, closes: true}, budget)
}

// The try method returns a context for one attempt at a clean-up, such as a release. The context
// ends after Options.CleanupBudget, or when the duration rest has passed since ctx ended. Close
// cancels the context only after it has tried to release all leases.
func (cs *calls) try(ctx context.Context, rest time.Duration) *call {
	return cs.enter(&call{caller: ctx, rest: rest}, cs.c.opts.CleanupBudget)
}

// cleanup returns a context for a clean-up that must be tried even if ctx has ended.
func (cs *calls) cleanup(ctx context.Context) *call { return cs.try(ctx, cs.c.opts.CleanupBudget) }

func (cs *calls) enter(k *call, budget time.Duration) *call {
	k.cs, k.gone, k.bound, k.end = cs, k.caller.Done(), true, cs.c.clock.early().add(budget)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.over {
		k.Cancel(context.Canceled)
		return k
	}
	k.next = cs.first
	if cs.first != nil {
		cs.first.prev = k
	}
	cs.first, cs.recent = k, true
	if !cs.running {
		cs.running = cs.c.spawn(func() { cs.run(cs.c.work) })
	}
	if cs.parked {
		cs.parked = false
		cs.wake <- struct{}{}
	}
	return k
}

func (cs *calls) leave(k *call) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	switch {
	case k.prev != nil:
		k.prev.next = k.next
	case cs.first == k:
		cs.first = k.next
	}
	if k.next != nil {
		k.next.prev = k.prev
	}
	k.prev, k.next = nil, nil
}

func (cs *calls) run(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if cs.round() {
			continue
		}
		ticker.Stop()
		select {
		case <-ctx.Done():
		case <-cs.wake:
		}
		ticker.Reset(tick)
	}
}

// round ends the calls that are past their deadline. It returns false if no call is under way and
// none has begun since the last round, so that the goroutine that calls round may sleep.
func (cs *calls) round() bool {
	now := cs.c.clock.early()
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for k := cs.first; k != nil; k = k.next {
		if k.bound && (k.left() || k.closes && cs.c.closing.Load()) {
			k.bound = false
			k.end = min(k.end, now.add(k.rest))
		}
		if k.end <= now {
			k.Cancel(context.DeadlineExceeded)
		}
	}
	cs.parked = cs.first == nil && !cs.recent
	cs.recent = false
	return !cs.parked
}

// close cancels all calls under way. A call that begins after close is cancelled at once.
func (cs *calls) close() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.over = true
	for k := cs.first; k != nil; k = k.next {
		k.Cancel(context.Canceled)
	}
}

type call struct {
	cs     *calls
	caller context.Context // the call has the values of this context
	// gone is the channel that caller.Done() returned. Only the goroutine that makes the call may use
	// methods of the caller's context, because these methods may block.
	gone <-chan struct{}

	// Guarded by cs.mu.
	end        instant
	rest       time.Duration // time that the call still has after the caller's ctx has ended
	bound      bool          // the caller's ctx has not ended yet
	closes     bool          // the beginning of Close counts as the end of the caller's ctx
	prev, next *call

	cancellation.Signal
}

func (k *call) left() bool {
	select {
	case <-k.gone:
		return true
	default:
		return false
	}
}

func (k *call) done() {
	k.cs.leave(k)
	k.Cancel(context.Canceled)
}

// Deadline implements context.Context.
func (k *call) Deadline() (time.Time, bool) {
	k.cs.mu.Lock()
	defer k.cs.mu.Unlock()
	return k.cs.c.clock.time(k.end), true
}

// Value implements context.Context.
func (k *call) Value(key any) any { return k.caller.Value(key) }
