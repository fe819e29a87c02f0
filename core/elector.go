package core

import (
	"context"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"time"
)

// ElectorOptions are the options of an Elector. Nil and zero fields mean the
// defaults. The fields have the same meaning as in [LockOptions].
type ElectorOptions struct {
	TTL, RenewEvery, MaxHold time.Duration
	Healthy                  func(context.Context) error
	// Value is the value that a new leader publishes, at most 64 KiB, such as an address.
	Value []byte
}

// Elector is an election: at most one of all candidates for a name is the
// leader. An Elector keeps nothing open and needs no closing.
type Elector struct {
	c    *Client
	lock *Lock
}

// betweenTerms is the longest pause of Run between two campaigns. The pause is random, at least
// half of betweenTerms, and gives another candidate a chance.
const betweenTerms = 100 * time.Millisecond

// Elector returns the election called name. It checks name and opts as [Client.Lock] does, and
// sends nothing to the store.
func (c *Client) Elector(name string, opts *ElectorOptions) (*Elector, error) {
	if err := c.begin("elector", name); err != nil {
		return nil, err
	}
	defer c.end()
	var o ElectorOptions
	if opts != nil {
		o = *opts
	}
	l, err := c.lock("elector", name, &LockOptions{
		TTL: o.TTL, RenewEvery: o.RenewEvery, MaxHold: o.MaxHold, Healthy: o.Healthy, Value: o.Value,
	})
	if err != nil {
		return nil, err
	}
	l.election = true
	return &Elector{c: c, lock: l}, nil
}

// Name returns the name of the election.
func (e *Elector) Name() string { return e.lock.name }

// Backend returns the name of the election's backend, the same name as in errors and events.
func (e *Elector) Backend() string { return e.c.name }

// Campaign waits until this candidate is the leader, ctx ends, or an error shows that waiting
// cannot help. It returns the same errors as [Lock.Acquire]. The end of ctx does not end a term.
// Call [Term.Resign] to end the term.
func (e *Elector) Campaign(ctx context.Context) (*Term, error) {
	if err := e.c.begin("campaign", e.lock.name); err != nil {
		return nil, err
	}
	defer e.c.end()
	return e.campaign(ctx)
}

func (e *Elector) campaign(ctx context.Context) (*Term, error) {
	lease, err := e.lock.acquire(ctx, "campaign")
	if err != nil {
		return nil, err
	}
	t := &Term{lease: lease}
	t.ctx, t.stop = lease.context(context.WithoutCancel(ctx))
	return t, nil
}

// Run campaigns until this candidate is the leader, calls fn, and campaigns again after every term
// until ctx ends (E1). fn is called once for each term and must return when the term's context ends
// (E4). Run and [Client.Close] wait until fn has returned.
//
// A term ends voluntarily when ctx ends, when Resign is called, or when fn returns. Run then
// cancels the term's context, but renews the term until fn has returned, and only then resigns it.
// So no successor leads while fn still runs. Run does not resign a term that was lost or reached
// MaxHold, but lets it expire (E2).
//
// When ctx has ended, Run returns an error for which errors.Is(err, ctx.Err()) is true. While ctx
// lives, Run returns only if an error, such as ErrClosed, makes campaigning pointless. If fn
// panics, Run resigns the term before the panic goes on.
func (e *Elector) Run(ctx context.Context, fn func(*Term)) error {
	if err := e.c.begin("run", e.lock.name); err != nil {
		return err
	}
	defer e.c.end()
	rctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(e.c.lifetime, func() { cancel(ErrClosed) })
	defer stop()
	for {
		term, err := e.campaign(rctx)
		if err == nil {
			e.serve(rctx, term, fn)
			pause := betweenTerms/2 + time.Duration(mrand.Int64N(int64(betweenTerms/2)))
			if sleep(rctx, pause) {
				continue
			}
			err = rctx.Err()
		}
		if cause := context.Cause(rctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return e.c.wrap("run", e.lock.name, err)
	}
}

func (e *Elector) serve(ctx context.Context, term *Term, fn func(*Term)) {
	s := &e.c.sched
	term.run = true
	term.ctx = e.c.inCallback(term.ctx)
	stop := context.AfterFunc(ctx, func() {
		term.stop(fmt.Errorf("%w: %w", ErrReleased, context.Cause(ctx)))
	})
	defer func() { // also when fn panics
		stop()
		term.stop(ErrReleased)
		if term.lease.Err() == nil {
			// EventReleased reports the error of this release. Client.Close reports that error too, unless
			// by then the lock has expired, or a try in the background has released the lock.
			_ = term.lease.Release(ctx)
		}
		s.served(term.lease)
	}()
	if s.serve(term.lease) {
		fn(term)
	}
}

// Leader returns the present leader, or the zero Holder when there is none.
func (e *Elector) Leader(ctx context.Context) (Holder, error) {
	return e.c.inspect(ctx, "leader", e.lock.name)
}

// Term is the leadership of one candidate, from its grant until its end.
type Term struct {
	lease *Lease
	ctx   context.Context
	stop  context.CancelCauseFunc
	run   bool // Elector.Run made this term and will resign it; set before other code sees the term
}

// Context returns the context for the leader's work. That context ends when the term is
// lost or resigned. In Elector.Run it also ends when the ctx of Run ends or the client
// closes. The context has the values of the ctx that was passed to Campaign or Run.
func (t *Term) Context() context.Context {
	t.lease.c.expireDue()
	return t.ctx
}

// Token returns the fencing token of this term; see [Lease.Token].
func (t *Term) Token() uint64 { return t.lease.Token() }

// Valid reports whether this candidate is the leader right now, by the clock of this host. In
// Elector.Run, a voluntary end, such as Resign, cancels the term's context, but Valid returns true
// until the callback has returned. So the callback can finish its work as the leader.
func (t *Term) Valid() bool { return t.lease.Valid() }

// Deadline returns the time at which the term ends unless it is renewed; see [Lease.Deadline].
func (t *Term) Deadline() time.Time { return t.lease.Deadline() }

// Err returns nil until the term's context has ended, and then the cause; see [Lease.Err]. After a
// voluntary end, such as Resign, the cause wraps ErrReleased, although Elector.Run holds the
// leadership until its callback has returned.
func (t *Term) Err() error {
	t.lease.c.expireDue()
	return context.Cause(t.ctx)
}

// Proclaim replaces the published value, at most 64 KiB, if the term is still held. If the term is
// over, the error satisfies errors.Is(err, ErrNotHeld). If the error wraps ErrUnavailable, it is
// unknown which value is published. The failed request may still reach the store within the term,
// even after a later Proclaim has succeeded. A caller that publishes again should put a sequence
// number into the value.
func (t *Term) Proclaim(ctx context.Context, value []byte) error {
	l := t.lease
	return l.c.question(ctx, "proclaim", l.lock.name, func(ctx context.Context) error {
		if err := checkValue(value); err != nil {
			return err
		}
		if !l.Valid() { // a term that is over in this process may live on in the store until its TTL ends
			return &NotHeldError{}
		}
		r := l.request(l.c.clock.now())
		r.Value = value
		err := l.c.b.Proclaim(ctx, r)
		l.c.notHeld(l, err)
		return err
	})
}

// Resign ends the term: it cancels the term's context and releases the leadership.
// It returns the same errors as [Lease.Release]. In a callback of Elector.Run it
// returns nil at once, and Run resigns when the callback has returned.
func (t *Term) Resign(ctx context.Context) error {
	t.stop(ErrReleased)
	if t.run {
		t.lease.c.expireDue()
		return nil
	}
	c := t.lease.c
	c.ops.Add(1)
	defer c.end()
	return c.wrap("resign", t.lease.lock.name, t.lease.release(ctx, c.opts.CleanupBudget))
}
