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

// State of a Lease.
type State int

// The states of a lease (L4).
const (
	Held     State = iota + 1 // granted, and the last renewal succeeded
	Suspect                   // a renewal failed or the backend is down; still ours until the deadline
	Released                  // this process released it
	Lost                      // it ended otherwise; Err says why
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

	alive    atomic.Bool  // not ended, and no release has begun
	deadline atomic.Int64 // an instant: sending of the last confirmed request + span - drift

	since  instant // when the grant was known
	keepBy instant // when AtLeast is over
	maxAt  instant // when MaxHold is over

	// Guarded by the scheduler's mutex.
	state      State
	err        error         // the cause, once done is closed
	cancels    []*leaseCtx   // contexts that end with the lease
	index      int           // in the scheduler's heap, -1 when it is not there
	next       instant       // when the scheduler has to look at it
	span       time.Duration // how long the last confirmed request lets it live: the TTL, or less before the first renewal
	endAt      instant       // when it is lost unless renewed
	due        instant       // planned time of the next renewal
	expiresBy  instant       // latest time at which the store has let it expire
	renewal    *renewalBatch // the renewal under way
	again      bool          // renew once more when renewal is over
	suspectErr error         // why it is suspect
	freeing    bool          // a Release is under way
	freed      chan struct{} // made by a second Release to wait for the first
	doubt      error         // why the outcome of a release that was sent is unknown
	pending    bool          // the janitor goes on releasing it
	gone       bool          // the store has confirmed that it is over
	stopped    bool          // EventReleased or EventLost is out
	serving    bool          // a callback of Do, TryDo or Run works under it
	leaving    bool          // Close is about to release it
	known      bool          // EventAcquired was not dropped

	ctx context.Context // ctx of the acquire, for its values in events; nil once stopped
}

// leaseCtx is one context made by Lease.Context.
type leaseCtx struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// end cancels the context. Cancelling ends with calls of Done and Value of
// its parent, which may be a type of the application and block. The context
// is over before these calls, and no caller waits for them.
func (e *leaseCtx) end(cause error) {
	go e.cancel(cause)
	<-e.ctx.Done()
}

// newLease makes a lease for a. It is not kept yet, and has no deadline.
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

// extend counts a confirmed request, whose span began between sent and got.
func (l *Lease) extend(span time.Duration, sent, got instant) {
	l.span = span
	l.deadline.Store(int64(sent.add(span - driftOf(span))))
	l.endAt = sent.add(lifeOf(span))
	l.expiresBy = max(l.expiresBy, got.add(span))
}

// short reports whether the store made the grant by itself, for less than
// the TTL, and no renewal has been confirmed yet.
func (l *Lease) short() bool { return l.span < l.lock.opts.TTL }

// Name returns the name of the lock.
func (l *Lease) Name() string {
	l.c.expireDue()
	return l.lock.name
}

// Owner returns the random id of the store's grant. The lease keeps it when
// the lock is handed over inside this host.
func (l *Lease) Owner() string {
	l.c.expireDue()
	return l.owner
}

// Token returns the fencing token: it is higher than that of every earlier
// grant of this name, as far as Properties().Fencing claims. Send it with
// every write, and let the resource refuse a token lower than one it has seen.
func (l *Lease) Token() uint64 {
	l.c.expireDue()
	return l.token
}

// Deadline returns when the lease ends unless it is renewed. That is the instant
// before the last confirmed request was sent, plus TTL, less an allowance for
// clock drift of a hundredth of the TTL and 2 ms (at most a tenth of it). A
// store may grant a lock to a waiter by itself, for some 100 ms; such a lease
// gets the TTL when its first renewal is back, a round trip later. Compare
// Deadline with time.Now. After the end of the lease it is the last deadline.
func (l *Lease) Deadline() time.Time {
	l.c.expireDue()
	return l.c.clock.time(instant(l.deadline.Load()))
}

// Valid reports whether the lease is held right now, by the clock: it is false
// at once after a pause of the process past the deadline.
func (l *Lease) Valid() bool {
	now := l.c.expireDue()
	return l.alive.Load() && now < instant(l.deadline.Load())
}

// Done returns a channel that is closed when the lease ends: it is lost, at
// its deadline at the latest (L3), or Release is called. Timers of a process
// stand still while its machine is suspended. After a suspend, the end of a
// lease is noticed in the first call of this package, or within a second.
func (l *Lease) Done() <-chan struct{} {
	l.c.expireDue()
	return l.done
}

// Err returns nil until Done is closed, and then the cause: an error that
// satisfies errors.Is for one of ErrReleased, ErrExpired, ErrTaken, ErrRevoked,
// ErrUnreachable, ErrPluginDied, ErrUnhealthy, ErrMaxHold.
func (l *Lease) Err() error {
	l.c.expireDue()
	l.c.sched.mu.Lock()
	defer l.c.sched.mu.Unlock()
	return l.err
}

// State returns the state (L4). A lease whose release failed stays Held or
// Suspect, though no longer valid, until a Release succeeds or its time is over.
func (l *Lease) State() State {
	now := l.c.expireDue()
	l.c.sched.mu.Lock()
	defer l.c.sched.mu.Unlock()
	if !l.alive.Load() && l.state <= Suspect && now >= l.endAt && !l.freeing {
		return Lost
	}
	return l.state
}

// Context returns a child of parent that also ends with the lease, before
// another owner can be granted the lock. context.Cause then says what ended
// it: Err's cause or parent's. Call cancel when the work is done.
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

// request identifies the lease to the store.
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

// refusal returns the answer to another acquire of this host while l is
// held: the store's answer, or one like it if the store was not asked.
func (l *Lease) refusal(answer error) error {
	c := l.c
	left := instant(l.deadline.Load()).sub(c.clock.now())
	h := Holder{Name: l.lock.name, Owner: l.owner, Label: c.opts.Label, TTL: max(left, time.Millisecond), Waiters: -1}
	var held *HeldError
	if errors.As(answer, &held) && held.Holder.Owner == l.owner {
		h = held.Holder
	}
	h.Token = l.token
	return fmt.Errorf("held by this process since %s: %w", c.clock.time(l.since).Format(timeOfDay), &HeldError{Holder: h})
}
