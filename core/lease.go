package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// State is the state of a Lease.
type State int

// The states of a lease (L4).
const (
	Held     State = iota + 1 // the last request for the lease, an acquire or a renewal, succeeded
	Suspect                   // a renewal failed or the backend is down; still held until the deadline
	Released                  // this process released the lease
	Lost                      // the lease ended without a release; Err says why
)

// String returns the state in lower case.
func (s State) String() string { return nameOf(stateNames, s) }

var stateNames = []string{Held: "held", Suspect: "suspect", Released: "released", Lost: "lost"}

// Lease is a held lock. The client renews it until it is released or lost.
type Lease struct {
	c     *Client
	lock  *Lock
	owner string
	token uint64
	done  chan struct{}

	alive    atomic.Bool  // the lease has not ended, and no release has begun
	deadline atomic.Int64 // instant when the last confirmed request was sent, plus span, minus drift

	since  instant // when the answer with the grant arrived
	keepBy instant // when AtLeast is over
	maxAt  instant // when MaxHold is over

	// Guarded by the scheduler's mutex.
	state      State
	err        error         // the cause, once done is closed
	cancels    []*leaseCtx   // contexts that end with the lease
	index      int           // index of the lease in the scheduler's heap; -1 if it is not in the heap
	next       instant       // when the scheduler has to look at this lease
	span       time.Duration // TTL; less until the first renewal if the store granted the lock without a request
	endAt      instant       // when the lease is lost unless it is renewed
	due        instant       // planned time of the next renewal
	expiresBy  instant       // latest time at which the lease expires in the store, even if an unanswered renewal succeeded
	renewal    *renewalBatch // the renewal under way
	again      bool          // the lease must be renewed again after the renewal under way
	suspectErr error         // why the lease is suspect
	freeing    bool          // a Release is under way
	freed      chan struct{} // made by a second Release to wait for the first
	doubt      error         // error that left the outcome of a release unknown
	pending    bool          // the janitor goes on trying to release the lease
	gone       bool          // nothing is left to release: the store has confirmed that, or the lease was handed over
	stopped    bool          // EventReleased or EventLost was emitted
	serving    bool          // a callback of Do, TryDo or Run works under the lease
	leaving    bool          // Close is about to release the lease
	known      bool          // EventAcquired was not dropped

	ctx context.Context // ctx of the acquire, for its values in events; nil once stopped is true
}

type leaseCtx struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// The end method cancels the context, and returns as soon as the context is over. After that, the
// cancel function calls methods of the parent context. Such a method may block, because an
// application may have implemented it. So end does not wait for the cancel function.
func (e *leaseCtx) end(cause error) {
	go e.cancel(cause)
	<-e.ctx.Done()
}

// newLease returns a lease that has no deadline and no renewal time yet.
func newLease(a *contender, owner string, g grant) *Lease {
	o := &a.lock.opts
	l := &Lease{
		c: a.lock.c, lock: a.lock, owner: owner, token: g.token, done: make(chan struct{}),
		ctx: a.ctx, state: Held, index: -1, since: g.got, keepBy: g.got.add(o.AtLeast), maxAt: never,
	}
	if o.MaxHold > 0 {
		l.maxAt = g.sent.add(o.MaxHold)
	}
	l.alive.Store(true)
	return l
}

// extend sets the lease's times after a request that was sent at the instant sent and answered at
// the instant got. The store counts the lease's span from an instant between sent and got.
func (l *Lease) extend(span time.Duration, sent, got instant) {
	l.span = span
	l.deadline.Store(int64(sent.add(span - driftOf(span))))
	l.endAt = sent.add(lifeOf(span))
	l.expiresBy = max(l.expiresBy, got.add(span))
}

// The short method reports whether the lease is still a short grant, which the store made to a
// waiter without a request (see driver.Grant). A confirmed renewal gives the lease its TTL.
func (l *Lease) short() bool { return l.span < l.lock.opts.TTL }

// Name returns the name of the lock.
func (l *Lease) Name() string {
	l.c.expireDue()
	return l.lock.name
}

// Owner returns the random id of the store's grant. All leases that are
// handed over inside this host under one grant have the same id.
func (l *Lease) Owner() string {
	l.c.expireDue()
	return l.owner
}

// Token returns the fencing token. It is higher than the token of every earlier grant of
// this lock, except after a failure that Properties().Fencing does not cover. Send the token
// with every write, and let the resource refuse a token lower than one that it has seen.
func (l *Lease) Token() uint64 {
	l.c.expireDue()
	return l.token
}

// Deadline returns the time at which the lease ends unless it is renewed. The deadline is the time
// just before the last confirmed request was sent, plus the TTL, minus an allowance for clock
// drift. The allowance is a hundredth of the TTL plus 2 ms, and at most a tenth of the TTL. A store
// may grant a lock to a waiter without a request, at first only for about Properties().FirstSpan.
// Such a lease gets its TTL when a renewal is confirmed. Compare Deadline with time.Now. After the
// lease has ended, Deadline returns the last deadline.
func (l *Lease) Deadline() time.Time {
	l.c.expireDue()
	return l.c.clock.time(instant(l.deadline.Load()))
}

// Valid reports whether the lease is held right now. Valid reads the clock. So if the process is
// paused until after the deadline, Valid then returns false at once.
func (l *Lease) Valid() bool {
	now := l.c.expireDue()
	return l.alive.Load() && now < instant(l.deadline.Load())
}

// Done returns a channel that is closed when the lease ends. The lease ends when Release is called,
// or when it is lost, which happens at its deadline at the latest (L3). Timers stand still while
// the machine is suspended. So if the deadline passed during a suspend, the lease ends at the next
// call of this package, or else within a second.
func (l *Lease) Done() <-chan struct{} {
	l.c.expireDue()
	return l.done
}

// Err returns nil until Done is closed, and then the cause. The cause is an
// error that satisfies errors.Is for one of ErrReleased, ErrExpired, ErrTaken,
// ErrRevoked, ErrUnreachable, ErrPluginDied, ErrUnhealthy, ErrMaxHold.
func (l *Lease) Err() error {
	l.c.expireDue()
	l.c.sched.mu.Lock()
	defer l.c.sched.mu.Unlock()
	return l.err
}

// State returns the state (L4). A lease whose release failed is no longer valid, but stays Held or
// Suspect until a Release succeeds, or until its deadline. From the deadline on it is Lost.
func (l *Lease) State() State {
	now := l.c.expireDue()
	l.c.sched.mu.Lock()
	defer l.c.sched.mu.Unlock()
	if !l.alive.Load() && l.state <= Suspect && now >= l.endAt && !l.freeing {
		return Lost
	}
	return l.state
}

// Context returns a child context of parent that also ends with the lease, before another owner can
// be granted the lock. context.Cause then returns what ended the context: the cause that Err
// returns, or parent's cause. Call the cancel function when the work is done.
func (l *Lease) Context(parent context.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx, stop := l.context(parent)
	return ctx, func() { stop(context.Canceled) }
}

func (l *Lease) context(parent context.Context) (context.Context, context.CancelCauseFunc) {
	l.c.expireDue()
	ctx, cancel := context.WithCancelCause(l.holding(parent))
	entry := &leaseCtx{ctx, cancel}
	s := &l.c.sched
	s.mu.Lock()
	over := l.err
	if over == nil {
		l.cancels = append(l.cancels, entry)
	}
	s.mu.Unlock()
	if over != nil {
		cancel(over)
	}
	return ctx, func(cause error) {
		cancel(cause)
		s.mu.Lock()
		defer s.mu.Unlock()
		if i := slices.Index(l.cancels, entry); i >= 0 {
			l.cancels = slices.Delete(l.cancels, i, i+1)
		}
	}
}

func (l *Lease) request(now instant) driver.Request {
	r := driver.Request{
		Name: l.lock.name, Owner: l.owner, Label: l.c.opts.Label, Token: l.token, TTL: l.lock.opts.TTL,
	}
	if l.keepBy > now {
		r.Keep = l.keepBy.sub(now)
	}
	return r
}

func (l *Lease) event(kind EventKind, took time.Duration, err error) Event {
	return Event{
		Kind: kind, Context: l.ctx, Name: l.lock.name, Owner: l.owner, Label: l.c.opts.Label,
		Token: l.token, Took: took, Err: err,
	}
}

// refusal returns the error for another acquire of this host while the lease l is held. The Holder
// in the error comes from the store's answer if it names l's owner, and otherwise from l.
func (l *Lease) refusal(answer error) error {
	c := l.c
	left := instant(l.deadline.Load()).sub(c.clock.now())
	h := Holder{Name: l.lock.name, Owner: l.owner, Label: c.opts.Label, TTL: max(left, time.Millisecond), Waiters: -1}
	if held, ok := errors.AsType[*HeldError](answer); ok && held.Holder.Owner == l.owner {
		h = held.Holder
	}
	h.Token = l.token
	return fmt.Errorf("held by this process since %s: %w", c.clock.time(l.since).Format(timeOfDay), &HeldError{Holder: h})
}
