package core

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// contender is one call of Acquire that is under way.
type contender struct {
	lock  *Lock
	ctx   context.Context // ctx of the caller, for its values in events
	began instant

	owner     string
	queued    bool    // owner has a place in the store's queue
	epoch     uint64  // value of scheduler.epoch when owner last began to wait
	expiresBy instant // latest end of a grant that the store may have made to owner; zero if none
	answer    error   // the last answer of the store
	announced bool    // EventWaiting was emitted
	denied    bool    // an EventWaiting has said that the store refuses this client
	poll      backoff
	retry     backoff
	ear       *ear // the call of Notify that reports releases; nil until it was started

	// Guarded by the queue's shard.
	waits  bool          // the contender waits in this host's queue and may be handed the lock
	lease  *Lease        // the lease that was handed over
	signal chan struct{} // buffer of 1; made when the contender first waits
}

func newContender(ctx context.Context, l *Lock) *contender {
	return &contender{
		lock: l, ctx: ctx, began: l.c.clock.early(), owner: newOwner(),
		poll: backoff{from: pollFrom, to: pollTo}, retry: backoff{from: retryFrom, to: retryTo},
	}
}

// newOwner returns a new owner id: 128 random bits, made for one grant (rule L1).
func newOwner() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails: crypto/rand crashes the program instead
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// The caller of wake must hold the mutex of the queue's shard.
func (a *contender) wake() {
	if a.signal == nil {
		return
	}
	select {
	case a.signal <- struct{}{}:
	default:
	}
}

// The caller of acquire must have called Client.begin.
func (l *Lock) acquire(ctx context.Context, op string) (*Lease, error) {
	if err := l.unaskable(ctx); err != nil {
		return nil, l.failed(ctx, op, nil, err)
	}
	l.c.start()
	a := newContender(ctx, l)
	if l.c.queues.join(a) && !a.waitsFirst() {
		if lease, err := a.ask(ctx); err == nil {
			return lease, nil
		}
	}
	// Making a context that Close can end takes time, so only a call that has to wait gets one.
	wctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.c.lifetime, func() { cancel(ErrClosed) })
	lease, err := a.contend(wctx)
	stop()
	cancel(nil)
	if err == nil {
		return lease, nil
	}
	l.c.queues.leave(a)
	return nil, l.failed(ctx, op, a, a.giveUp(ctx, err))
}

func (l *Lock) unaskable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return l.c.refuseReentry(ctx, l.name)
}

// The failed method emits EventAcquireFailed. If the contender a is nil, no request was sent.
func (l *Lock) failed(ctx context.Context, op string, a *contender, err error) error {
	c := l.c
	ev := Event{Kind: EventAcquireFailed, Context: ctx, Name: l.name, Label: c.opts.Label, Err: err}
	if a != nil {
		ev.Owner, ev.Took = a.owner, c.clock.now().sub(a.began)
	}
	c.events.add(ev)
	return c.wrap(op, l.name, err)
}

// The caller of tryAcquire must have called Client.begin.
func (l *Lock) tryAcquire(ctx context.Context) (*Lease, error) {
	if err := l.unaskable(ctx); err != nil {
		return nil, l.failed(ctx, "acquire", nil, err)
	}
	if l.c.queues.waiting(l.name) {
		return nil, l.failed(ctx, "acquire", nil, l.refusal(ctx))
	}
	l.c.start()
	a := newContender(ctx, l)
	lease, err := a.ask(ctx)
	if err == nil {
		return lease, nil
	}
	err = l.c.heldHere(l.name, err)
	switch {
	case ctx.Err() != nil:
		err = a.ended(ctx)
	case l.c.closing.Load() && !definite(err):
		err = ErrClosed
	}
	return nil, l.failed(ctx, "acquire", a, a.giveUp(ctx, err))
}

// refusal returns the error of a TryAcquire while other callers of this host wait for the lock. The
// TryAcquire must not overtake them, even if the lock is free in the store.
func (l *Lock) refusal(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, acquireBudget(l.opts.TTL))
	defer cancel()
	h, err := l.c.b.Inspect(ctx, l.name)
	if err != nil {
		return err
	}
	return fmt.Errorf("other callers of this host wait for it: %w", l.c.heldHere(l.name, &HeldError{Holder: h}))
}

// contend alternates between this host's queue and the store until it has a lease or gives up.
func (a *contender) contend(ctx context.Context) (*Lease, error) {
	for {
		if a.answer != nil {
			if a.lock.c.permanent(a.answer) {
				return nil, a.answer
			}
			a.tellWaiting(a.answer)
		}
		lease, asked := a.await(ctx)
		switch {
		case lease != nil:
			return lease, nil
		case asked && ctx.Err() == nil:
			continue
		}
		lease, err := a.waitInHost(ctx)
		if lease != nil || err != nil {
			return lease, err
		}
		if ctx.Err() != nil {
			return nil, a.ended(ctx)
		}
		if a.answer == nil && a.waitsFirst() {
			a.answer = &HeldError{}
			continue
		}
		if a.answer = a.clean(ctx); a.answer != nil {
			continue
		}
		if lease, err = a.ask(ctx); err == nil {
			return lease, nil
		}
	}
}

// waitsFirst reports whether the contender enters the store's queue before it asks for the lock. It
// does so if other hosts have wanted the lock in the last second, and if the store grants a free
// lock to the first owner in its queue. That saves a request that would probably be refused.
func (a *contender) waitsFirst() bool {
	c := a.lock.c
	return c.b.waiter != nil && c.queues.wanted(a.lock.name, c.clock.early()) && c.b.Properties().FirstSpan > 0
}

// waitInHost returns the lease that another caller of this host hands over. It returns nil, nil if
// the contender must ask the store.
func (a *contender) waitInHost(ctx context.Context) (*Lease, error) {
	insist := false
	for {
		var again <-chan time.Time
		next := a.lock.c.queues.nextStep(a, insist)
		switch next {
		case stepAsk:
			return nil, nil
		case stepTake:
			if ctx.Err() == nil {
				return a.lease, nil
			}
			over := a.ended(ctx)
			return nil, joinErrors(over, a.discard(ctx))
		case stepHead: // the store may have ended this host's lease unnoticed, so ask the store after maxAsk
			again = time.After(maxAsk)
		}
		a.tellWaiting(ErrHeld)
		select {
		case <-a.signal:
		case <-again:
			insist = true
		case <-ctx.Done():
			if a.lock.c.queues.stopWaiting(a) {
				return nil, a.ended(ctx)
			}
		}
	}
}

// The discard method releases the lease that was handed over to a caller that has given up. If the
// release fails, the error is an IndeterminateError, because the lock may stay taken.
func (a *contender) discard(ctx context.Context) error {
	err := a.lease.Release(ctx)
	if err != nil && !errors.Is(err, ErrNotHeld) && !errors.Is(err, ErrIndeterminate) {
		return &IndeterminateError{FreeAt: a.lock.c.clock.time(a.lease.over()), Err: err}
	}
	return err
}

// The ended method returns an error for the end of ctx. The error contains the store's last answer.
func (a *contender) ended(ctx context.Context) error {
	err := ctx.Err()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrClosed):
		err = ErrClosed
	case !errors.Is(cause, err):
		err = fmt.Errorf("%w: %w", err, cause)
	}
	answer := a.lock.c.heldHere(a.lock.name, a.answer)
	if answer == nil || errors.Is(answer, err) {
		return fmt.Errorf("%w before the store has answered", err)
	}
	return fmt.Errorf("%w: %w", err, answer)
}

func (c *Client) heldHere(name string, answer error) error {
	if answer != nil && !errors.Is(answer, ErrHeld) {
		return answer
	}
	own := c.queues.holder(name)
	var held *HeldError
	if own == nil || !own.alive.Load() || errors.As(answer, &held) && held.Holder.Owner != "" && held.Holder.Owner != own.owner {
		return answer
	}
	return own.refusal(answer)
}

// tellWaiting emits EventWaiting when the contender begins to wait, and again when the store begins
// to refuse this client.
func (a *contender) tellWaiting(err error) {
	denied := refused(err)
	if !a.announced || denied && !a.denied {
		a.lock.c.events.add(a.event(EventWaiting, err))
	}
	a.announced, a.denied = true, denied
}

func (a *contender) event(kind EventKind, err error) Event {
	return Event{Kind: kind, Context: a.ctx, Name: a.lock.name, Owner: a.owner, Label: a.lock.c.opts.Label, Err: err}
}

func (a *contender) request() driver.Request {
	o := &a.lock.opts
	return driver.Request{
		Name: a.lock.name, Owner: a.owner, Label: a.lock.c.opts.Label,
		Value: o.Value, TTL: o.TTL, Keep: o.AtLeast,
	}
}

const (
	// maxAsk limits the pause between two requests of the first caller in this host's queue (K4).
	maxAsk = time.Second
	// waitSlack is the longest time by which a wait in the store may exceed the requested time. After
	// that, the client assumes that the backend hangs (rule K4).
	waitSlack = time.Second
	// A wake-up counts as spurious if the wait and the refusal after it together took less than
	// spuriousWake plus two round trips. A round trip longer than maxRTT counts as maxRTT.
	spuriousWake = 2 * time.Millisecond
	maxRTT       = 50 * time.Millisecond
	// If a store wakes no waiters, pauses between polls grow from at most pollFrom to at most pollTo.
	pollFrom, pollTo = 5 * time.Millisecond, 250 * time.Millisecond
	// While the backend does not answer, pauses between tries grow from retryFrom to retryTo at most.
	retryFrom, retryTo = 20 * time.Millisecond, 500 * time.Millisecond
	// For this time after a refusal or a long wait, other hosts are assumed to want the lock.
	wantedFor = time.Second
	// tellEvery is the shortest time between two events of kind EventWaitFailed of a client.
	tellEvery = time.Minute
)

// await waits before the contender's next request, at most until the holder's lease may end, and
// for at most maxAsk. If the result asked is true, the caller need not ask the store.
func (a *contender) await(ctx context.Context) (lease *Lease, asked bool) {
	c := a.lock.c
	var held *HeldError
	switch {
	case a.answer == nil:
		return nil, false
	case !errors.As(a.answer, &held):
		sleep(ctx, a.retry.next())
		return nil, false
	}
	a.retry.reset()
	if c.queues.holder(a.lock.name) != nil {
		return nil, false // this host holds the lock, so waitInHost must wait
	}
	rest := maxAsk
	if ttl := held.Holder.TTL; ttl > 0 {
		rest = min(ttl+time.Millisecond, maxAsk)
	}
	if c.b.waiter == nil {
		a.pause(ctx, rest)
		return nil, false
	}
	return a.wait(ctx, rest)
}

// wait waits in the store's queue for at most the duration rest. Then it asks for the lock, unless
// the store granted the lock during the wait and the grant needs no request to confirm it. The
// result asked is false if the caller should ask the store now.
//
// Note: the plugin could ask for the lock after a wake-up, to save a round trip between plugin and
// host. But then a frozen host would get the lock and keep it for the whole TTL.
func (a *contender) wait(ctx context.Context, rest time.Duration) (lease *Lease, asked bool) {
	c := a.lock.c
	g := grant{epoch: c.sched.epoch.Load()}
	if a.queued && a.epoch != g.epoch {
		return nil, false // first the caller must withdraw the place in the queue
	}
	a.queued, a.epoch = true, g.epoch
	before := a.answer
	began, at := c.clock.early(), time.Now() // began is read first, so that instants computed from it are not too late
	wctx, cancel := context.WithTimeout(ctx, rest+waitSlack)
	own, err := c.b.Wait(wctx, a.request(), rest)
	cancel()
	g.token, g.sent = own.Token, began.add(own.Sent.Sub(at))
	g.span = min(own.For, a.lock.opts.TTL)
	switch {
	case err != nil:
		return nil, a.failedWait(ctx, rest, err)
	case g.token != 0 && (ctx.Err() != nil || !a.doubts(g, began)):
		lease, err = a.answered(ctx, g, nil)
	case ctx.Err() != nil:
		return nil, true
	default:
		lease, err = a.ask(ctx)
	}
	ended := c.clock.early()
	spurious := ended.sub(began) < spuriousWake+2*min(c.roundTrip(), maxRTT)
	switch {
	case err == nil:
		if !spurious {
			c.queues.want(a.lock.name, ended.add(wantedFor))
		}
		return lease, true
	case ctx.Err() != nil:
		a.answer = before // the answer that made the contender wait
	case !errors.Is(err, ErrHeld):
	case !spurious:
		a.poll.reset()
	default: // woken for nothing: do not spin
		sleep(ctx, min(a.poll.next()-pollFrom, rest))
	}
	return nil, true
}

// doubts reports whether a request must confirm the grant g, which the store made during a wait.
// The wait started at the instant in began. A request is needed if a renewal might come too late,
// if the machine may have been suspended since g.sent (unnoticed by the plugin's clock), or if the
// lock has AtLeast. Such a lock must stay taken even if its holder dies, and g is too short.
func (a *contender) doubts(g grant, began instant) bool {
	c := a.lock.c
	age := c.clock.now().sub(g.sent)
	return age >= g.span/2 || lifeOf(g.span)-age < 2*c.roundTrip() || a.lock.opts.AtLeast > 0 ||
		g.sent < began && c.clock.sleptSince(g.sent)
}

// failedWait pauses after a wait in the store has failed with err. It returns true if asking the
// store is useless. A grant that the store made during the wait does no harm, because the contender
// asks again as a.owner or withdraws a.owner.
func (a *contender) failedWait(ctx context.Context, rest time.Duration, err error) bool {
	c := a.lock.c
	switch {
	case ctx.Err() != nil:
		return true
	case c.permanent(err):
		a.answer = err
		return true
	case errors.Is(err, driver.ErrWithdrawn):
		a.owner, a.queued = newOwner(), false
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	a.tellWaitFailed(err)
	sleep(ctx, min(a.poll.next(), rest))
	return false
}

// tellWaitFailed emits EventWaitFailed at most once a minute (tellEvery) for all callers of the
// client. If err is not a refusal, it emits the event only after several waits have failed.
func (a *contender) tellWaitFailed(err error) {
	c := a.lock.c
	now, at := c.clock.early(), c.waitsTold.Load()
	if !refused(err) && a.poll.last < 4*pollFrom || int64(now) < at || !c.waitsTold.CompareAndSwap(at, int64(now.add(tellEvery))) {
		return
	}
	c.events.add(a.event(EventWaitFailed, c.wrap("wait", a.lock.name, err)))
}

// backoff computes random pauses, each between last/2 and last. The next method first doubles the
// last field, up to the limit in the to field.
type backoff struct{ from, to, last time.Duration }

func (b *backoff) next() time.Duration {
	b.last = min(max(b.from, 2*b.last), b.to)
	return b.last - time.Duration(mrand.Int64N(int64(b.last/2)))
}

func (b *backoff) reset() { b.last = 0 }
