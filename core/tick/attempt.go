package tick

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/core"
)

type outcome int

const (
	open      outcome = iota // no host is known to have taken the tick, so this host may try again
	ran                      // the function has run here
	elsewhere                // another host has taken the tick
	missed                   // this host has taken the tick, too late to run it
	doubtful                 // this host may have taken the tick, or the store may have forgotten that a host took it
)

type result struct {
	outcome
	token uint64
	took  time.Duration
	err   error
}

// attempt runs fn for the tick due at t=at, unless another host has acquired the tick's lock.
//
// Without Overlap, attempt acquires the job's lock before the tick's lock. So if a host dies while
// it waits for the previous run, other hosts can still take the tick. When the tick's age reaches
// Late, a timer cancels requests under way, and attempt no longer calls fn. Until then, attempt
// tries again while the outcome is open, unless the error means that every further try would fail.
// If patient is false, attempt also ends if the store denies the job's lock (ErrDenied).
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
				ctx = job // the ctx of the job's lock, so that fn goes on if only the tick's lock is lost
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
		// The holder of the job's lock runs this tick, will soon take it, or still runs the previous
		// tick. If that holder takes this tick, it does so within this pause, so this host need not wait
		// longer.
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

// If the previous run still holds the job's lock, inTheWay returns an error that names the holder.
// Otherwise, it returns err. It takes at most the duration atMost, because the next tick waits.
func (j *Job) inTheWay(ctx context.Context, atMost time.Duration, err error) error {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	if holder, failed := j.c.Inspect(ctx, j.name); failed == nil && holder.Held() {
		return fmt.Errorf("%w: the run before has not ended: %w", ErrLate, &core.HeldError{Holder: holder})
	}
	return err
}

// The pointless function reports whether err means that every further try would fail.
func pointless(err error) bool {
	return errors.Is(err, core.ErrInvalid) || errors.Is(err, core.ErrUnsupported) || errors.Is(err, core.ErrClosed)
}

// take acquires the lock of the tick due at t=at, calls the mine function while it holds that lock,
// and returns that function's results. The store keeps that lock for Keep, even after take returns.
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

// settle finds out what happened to the tick due at t=at. That tick is more than Late old, so this
// host must not run it. If no host has taken the tick, settle takes it, so that no host can run it.
func (j *Job) settle(ctx context.Context, at time.Time) (outcome, error) {
	_, keep := j.spans(at)
	return j.take(ctx, at, func(context.Context, *core.Lease) (outcome, error) {
		if j.age(at) > keep/2 {
			return doubtful, errForgotten
		}
		return missed, nil
	})
}
