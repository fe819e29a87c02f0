package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Release ends the lease, so that another owner may be granted the lock (L7). Release closes Done
// at once, and Valid then returns false. Release may be called again, by many goroutines, and after
// the lease was lost. After the store has confirmed the release, further calls do nothing and
// return nil.
//
// Release tries until the store has confirmed the release, Options.CleanupBudget has passed after
// the end of ctx, the lease has expired in the store, or an error shows that further tries are
// useless. If Release fails without such an error, the client goes on trying in the background
// until the lease has expired. The error is an [*IndeterminateError] if a failed request may have
// released the lock. Otherwise, the lock is still taken, and the error wraps ErrUnavailable or the
// store's reason to refuse. Both kinds of errors say when the lock is free at the latest. If
// errors.Is(err, ErrNotHeld) is true, the lease had been lost before Release, and a [*NotHeldError]
// may name the present owner. Release also fails if another Release of the lease takes too long.
//
// If a goroutine of the same client waits for the lock, Release usually hands the lock over to that
// goroutine at once, without the store. Then Release returns nil even if ctx has ended. Release
// asks the store instead if, for example, a renewal has failed or other hosts must get a turn.
func (l *Lease) Release(ctx context.Context) error {
	l.c.ops.Add(1) // the begin method is not used, because it refuses calls once Close has begun
	defer l.c.end()
	return l.c.wrap("release", l.lock.name, l.release(ctx, l.c.opts.CleanupBudget))
}

// release tries to release the lease l, until the duration rest has passed after the end of ctx.
func (l *Lease) release(ctx context.Context, rest time.Duration) error {
	if l.c.sched.handOver(ctx, l) {
		return nil
	}
	f, todo, err := l.c.sched.beginRelease(ctx, l, rest)
	if !todo {
		return err
	}
	if f != nil {
		l.c.drainRenewal(ctx, f, rest)
	}
	sent := l.c.clock.early()
	doubt, err := l.free(ctx, rest)
	took := l.c.clock.early().sub(sent)
	if doubt == nil && err == nil {
		l.c.took(took)
	}
	return l.c.sched.endRelease(ctx, l, doubt, err, took)
}

// drainRenewal waits until the renewal f has ended, but at most for half of the clean-up
// budget, so that time is left for the release. If rest is 0, it also returns when ctx ends.
func (c *Client) drainRenewal(ctx context.Context, f *renewalBatch, rest time.Duration) {
	gone := ctx.Done()
	if rest > 0 { // the timer ends the wait before rest is over
		gone = nil
	}
	timer := time.NewTimer(c.opts.CleanupBudget / 2)
	defer timer.Stop()
	select {
	case <-f.done:
	case <-timer.C:
	case <-gone:
	}
}

// releaseAgain returns nil if the store has confirmed the release or no longer has the lease.
func (l *Lease) releaseAgain(ctx context.Context) error {
	s := &l.c.sched
	s.mu.Lock()
	gone, busy := l.gone, l.freeing
	l.freeing = !gone
	s.mu.Unlock()
	switch {
	case gone:
		return nil
	case busy:
		return errBusy
	}
	err := l.c.b.Release(ctx, l.request(l.c.clock.early()))
	err = s.endRelease(ctx, l, doubtOf(err), err, 0)
	if errors.Is(err, ErrNotHeld) {
		return nil
	}
	return err
}

var errBusy = errors.New("another release of it is under way")

// beginRelease ends the lease l in this process and returns true. If a renewal of l is under way,
// beginRelease also returns that renewal, which the caller must wait for. It returns false if l is
// already released, or if another Release of l does not end in time.
func (s *scheduler) beginRelease(ctx context.Context, l *Lease, rest time.Duration) (*renewalBatch, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l.freeing {
		if l.freed == nil {
			l.freed = make(chan struct{})
		}
		first := l.freed
		s.mu.Unlock()
		wctx, cancel := s.c.withGrace(ctx, rest)
		select {
		case <-first:
		case <-wctx.Done():
		}
		over := wctx.Err() != nil
		cancel()
		s.mu.Lock()
		if over && l.freeing {
			return nil, false, l.unreleased(errBusy)
		}
	}
	if l.gone {
		return nil, false, nil
	}
	l.freeing = true
	if l.alive.Load() {
		s.finish(l, l.state, ErrReleased)
	}
	return l.renewal, true, nil
}

// endRelease records the outcome of a release and returns the error for the caller of Release. If
// the outcome of a try is unknown, doubt is the error of that try.
func (s *scheduler) endRelease(ctx context.Context, l *Lease, doubt, err error, took time.Duration) error {
	s.mu.Lock()
	l.freeing = false
	if l.freed != nil {
		close(l.freed)
		l.freed = nil
	}
	if l.doubt == nil {
		l.doubt = doubt
	}
	kind, cause := EventReleased, err
	switch {
	case err == nil || l.doubt != nil && errors.Is(err, ErrNotHeld):
		err, cause = nil, nil
		l.gone = true
		if l.state != Lost {
			l.state = Released
		}
	case errors.Is(err, ErrNotHeld):
		l.state, kind, cause = Lost, EventLost, s.verdict(l, err, s.c.clock.now())
	default:
		left := !l.pending && !final(err)
		err = l.unreleased(err)
		cause = err
		if left {
			l.pending = true
			s.c.janitor.add(&cleanup{name: l.lock.name, until: l.expiresBy, try: l.releaseAgain, err: err})
		}
	}
	if !l.stopped {
		ev := l.event(kind, took, cause)
		if kind == EventReleased {
			ev.Context = ctx
		}
		s.stop(l, ev)
	}
	s.mu.Unlock()
	s.notify([]*Lease{l})
	return err
}

// The caller of unreleased must hold the scheduler's mutex.
func (l *Lease) unreleased(err error) error {
	at := l.c.clock.time(l.expiresBy)
	if l.doubt != nil {
		return &IndeterminateError{FreeAt: at, Err: l.doubt}
	}
	return fmt.Errorf("not released, free at the latest at %s: %w", at.Format(timeOfDay), err)
}

// The free method tries to release the lease l until the store has answered, the duration rest has
// passed after the end of ctx, or the lease has expired. If the outcome of a try is unknown, doubt
// is the error of that try.
func (l *Lease) free(ctx context.Context, rest time.Duration) (doubt, err error) {
	c := l.c
	began := c.clock.early()
	call := c.calls.try(ctx, rest)
	err = c.b.Release(call, l.request(began))
	call.done()
	doubt = doubtOf(err)
	if err == nil || errors.Is(err, ErrNotHeld) || final(err) {
		return doubt, err
	}
	if ctx.Err() != nil {
		rest -= c.clock.early().sub(began)
	}
	rctx, cancel := c.withGrace(ctx, rest)
	defer cancel()
	pause := backoff{from: minRetry, to: retryTo}
	for sleep(rctx, pause.next()) && c.clock.now() < l.over() {
		call := c.calls.try(rctx, 0)
		err = c.b.Release(call, l.request(c.clock.early())) // a new request, because less of AtLeast is left
		call.done()
		if doubt == nil {
			doubt = doubtOf(err)
		}
		if err == nil || errors.Is(err, ErrNotHeld) || final(err) {
			break
		}
	}
	return doubt, err
}

// doubtOf returns err if err leaves the outcome of a release unknown. It returns
// nil if err is an answer of the store, or means that the request was not sent.
func doubtOf(err error) error {
	if err == nil || errors.Is(err, ErrNotHeld) || definite(err) {
		return nil
	}
	return err
}

// over returns the instant by which the lease l expires in the store if no further request is sent.
func (l *Lease) over() instant {
	l.c.sched.mu.Lock()
	defer l.c.sched.mu.Unlock()
	return l.expiresBy
}

// withGrace returns a context that has the values of ctx, and that ends when the duration rest has
// passed after the end of ctx, or when the client has closed.
func (c *Client) withGrace(ctx context.Context, rest time.Duration) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if rest > 0 {
			sleep(out, rest)
		}
		cancel()
	})
	stopWork := context.AfterFunc(c.work, cancel)
	return out, func() {
		stop()
		stopWork()
		cancel()
	}
}

// janitor continues releases and withdrawals that failed. Their callers have already received an
// error. The janitor tries each clean-up until it succeeds, the grant has expired, or the client
// closes. Close itself then tries the remaining clean-ups.
type janitor struct {
	c       *Client
	mu      sync.Mutex
	pending []*cleanup
	running bool
}

type cleanup struct {
	name  string                          // name of the lock
	until instant                         // when the grant or lease expires and needs no clean-up
	try   func(ctx context.Context) error // tries once, and returns nil when there is nothing left to do
	err   error                           // the error that the caller of Acquire or Release got
}

const janitorPause = 250 * time.Millisecond

func (j *janitor) add(k *cleanup) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pending = append(j.pending, k)
	if !j.running {
		j.running = j.c.spawn(j.run)
	}
}

// The all method removes and returns the pending clean-ups.
func (j *janitor) all() []*cleanup {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := j.pending
	j.pending = nil
	return out
}

func (j *janitor) run() {
	for sleep(j.c.lifetime, janitorPause) && j.round(j.c.lifetime) {
	}
}

// round tries the pending clean-ups. If one clean-up fails, round returns true at once, because the
// others would probably fail too. It returns false when no clean-up is left or ctx has ended.
func (j *janitor) round(ctx context.Context) bool {
	for k := j.first(); k != nil && ctx.Err() == nil; k = j.first() {
		if j.c.clock.now() < k.until {
			call, cancel := context.WithTimeout(ctx, j.c.opts.CleanupBudget)
			err := k.try(call)
			cancel()
			if err != nil {
				return true
			}
		}
		j.drop(k)
	}
	return false
}

// The first method returns the first clean-up and moves it to the end of the list, so that a
// clean-up that always fails does not delay the others. If the list is empty, it returns nil and
// the janitor's goroutine ends.
func (j *janitor) first() *cleanup {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.pending) == 0 {
		j.pending, j.running = nil, false
		return nil
	}
	k := j.pending[0]
	copy(j.pending, j.pending[1:])
	j.pending[len(j.pending)-1] = k
	return k
}

func (j *janitor) drop(k *cleanup) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i := slices.Index(j.pending, k); i >= 0 {
		j.pending = slices.Delete(j.pending, i, i+1)
	}
}
