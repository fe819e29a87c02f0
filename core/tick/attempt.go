package tick

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/core"
)

// outcome says what happened to a tick.
type outcome int

const (
	open      outcome = iota // nothing: it can be asked for again
	ran                      // the function has run here
	elsewhere                // another host has it
	missed                   // it was taken here, too late to run it
	doubtful                 // it may have been taken here, or was taken and forgotten
)

// result of an attempt to run a tick.
type result struct {
	outcome
	token uint64
	took  time.Duration
	err   error
}

// attempt runs fn for a tick, if no other host has it.
//
// attempt acquires the job's lock first, so that a host that dies while it waits for
// the run before has taken nothing. All waiting ends at Late: a timer then ends the
// calls under way, and the function is not begun once the timer has fired. Until
// then attempt tries again, whatever the store answers, and whatever happens to the
// job's lock meanwhile. It stops early for a pointless error. For an impatient
// caller it also stops while the store has refused this client from the beginning.
func (j *Job) attempt(ctx context.Context, at time.Time, patient bool, fn func(context.Context, Tick) error) (r result) {
	late, keep := j.spans(at)
	wctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(late-j.age(at), func() { cancel(ErrLate) })
	defer timer.Stop()
	entered := false
	take := func(job context.Context, lease *core.Lease) error {
		entered = true
		r.outcome, r.err = j.take(job, at, func(ctx context.Context, own *core.Lease) (outcome, error) {
			inTime := timer.Stop()
			switch age := j.age(at); {
			case age > keep/2:
				return doubtful, errForgotten
			case !inTime || age > late:
				return missed, ErrLate
			}
			if lease == nil {
				lease = own
			} else {
				ctx = job // the loss of the tick's lock, broken by hand say, must not free the job's
			}
			began := time.Now()
			defer func() { r.token, r.took = lease.Token(), time.Since(began) }()
			return ran, fn(ctx, Tick{At: at, Lease: lease})
		})
		return r.err
	}
	enter := func() error { return take(wctx, nil) }
	if j.lock != nil {
		enter = func() error { return j.lock.Do(wctx, take) }
		asked := time.Now()
		if r.err = j.lock.TryDo(wctx, take); r.outcome != open {
			return r
		}
		// Another host runs this tick, is about to take it, or runs the one before. By
		// the end of this pause it will have taken this one, and hosts need not queue up.
		sleep(wctx, 10*time.Millisecond+2*time.Since(asked))
		if holder, err := j.c.Inspect(wctx, j.markName(at)); err == nil && holder.Held() {
			return result{outcome: elsewhere, err: &core.HeldError{Holder: holder}}
		}
	}
	for {
		r.err = enter()
		refused := !entered && !patient && errors.Is(r.err, core.ErrDenied)
		if r.outcome == open && !refused && !pointless(r.err) && sleep(wctx, min(late/10, nap)) {
			continue
		}
		if r.outcome == open && j.lock != nil && context.Cause(wctx) == ErrLate {
			r.err = j.inTheWay(ctx, min(late/10, nap), r.err)
		}
		return r
	}
}

// inTheWay names the host whose run still keeps a late tick from starting; if there
// is none, it returns err. The next tick waits for inTheWay, no longer than atMost.
func (j *Job) inTheWay(ctx context.Context, atMost time.Duration, err error) error {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	if holder, failed := j.c.Inspect(ctx, j.name); failed == nil && holder.Held() {
		return fmt.Errorf("%w: the run before has not ended: %w", ErrLate, &core.HeldError{Holder: holder})
	}
	return err
}

// pointless reports whether no later try can succeed after err.
func pointless(err error) bool {
	return errors.Is(err, core.ErrInvalid) || errors.Is(err, core.ErrUnsupported) || errors.Is(err, core.ErrClosed)
}

// take acquires the lock of a tick, calls mine under it, and returns what mine
// does. The lock stays taken for Keep after its grant.
func (j *Job) take(ctx context.Context, at time.Time, mine func(context.Context, *core.Lease) (outcome, error)) (out outcome, err error) {
	mark, err := j.mark(at)
	if err != nil {
		return open, err
	}
	err = mark.TryDo(ctx, func(ctx context.Context, lease *core.Lease) (err error) {
		out, err = mine(ctx, lease)
		return err
	})
	switch {
	case out != open:
	case errors.Is(err, core.ErrHeld):
		out = elsewhere
	case errors.Is(err, core.ErrIndeterminate):
		out = doubtful
	}
	return out, err
}

// settle asks what happened to a late tick, and takes it if no host has run it: then
// no host will. Until the tick is late by this host's clock, others may run it.
func (j *Job) settle(ctx context.Context, at time.Time) (outcome, error) {
	_, keep := j.spans(at)
	return j.take(ctx, at, func(context.Context, *core.Lease) (outcome, error) {
		if j.age(at) > keep/2 {
			return doubtful, errForgotten
		}
		return missed, nil
	})
}
