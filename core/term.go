package core

import (
	"context"
	"time"
)

// Term is a held leadership.
type Term struct {
	lease *Lease
	ctx   context.Context
	stop  context.CancelCauseFunc
	run   bool // of Elector.Run, which resigns it; set before anybody else sees it
}

func newTerm(ctx context.Context, lease *Lease) *Term {
	t := &Term{lease: lease}
	t.ctx, t.stop = lease.context(context.WithoutCancel(ctx))
	return t
}

// Context returns the context under which to lead. It ends when the term does:
// lost, resigned, or, in Elector.Run, when Run is to end. It has the values of
// the ctx that was campaigned with.
func (t *Term) Context() context.Context {
	t.lease.c.look()
	return t.ctx
}

// Token returns the fencing token of this term; see [Lease.Token].
func (t *Term) Token() uint64 { return t.lease.Token() }

// Valid reports whether the leadership is held right now, by the clock. In
// Elector.Run it stays true after the context was cancelled for a voluntary
// end, until the callback has returned: time to finish properly.
func (t *Term) Valid() bool { return t.lease.Valid() }

// Deadline returns when the term ends unless it is renewed; see [Lease.Deadline].
func (t *Term) Deadline() time.Time { return t.lease.Deadline() }

// Err returns nil until Context has ended, and then the cause; see [Lease.Err].
// A voluntary end is ErrReleased, although the leadership is held until the
// callback of Elector.Run has returned.
func (t *Term) Err() error {
	t.lease.c.look()
	return context.Cause(t.ctx)
}

// Proclaim replaces the published value, at most 64 KiB, if the term is still
// held. The error satisfies errors.Is(err, ErrNotHeld) if it is not. One that
// wraps ErrUnavailable leaves open which value is published, and when: what was
// sent may still arrive in the term, also after a later Proclaim that succeeded.
// Who publishes again puts a number of its own into the value.
func (t *Term) Proclaim(ctx context.Context, value []byte) error {
	l := t.lease
	return l.c.question(ctx, "proclaim", l.lock.name, func(ctx context.Context) error {
		if err := checkValue(value); err != nil {
			return err
		}
		r := l.request(l.c.clock.now())
		r.Value = value
		err := l.c.b.Proclaim(ctx, r)
		l.c.notHeld(l, err)
		return err
	})
}

// Resign ends the term: its context is cancelled and the leadership released,
// with the errors of [Lease.Release]. In a callback of Elector.Run it returns
// nil at once, and Run resigns when the callback has returned.
func (t *Term) Resign(ctx context.Context) error {
	t.stop(ErrReleased)
	if t.run {
		t.lease.c.look()
		return nil
	}
	c := t.lease.c
	c.ops.Add(1)
	defer c.end()
	return c.wrap("resign", t.lease.lock.name, t.lease.release(ctx, c.opts.CleanupBudget))
}
