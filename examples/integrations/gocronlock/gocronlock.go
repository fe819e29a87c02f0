// Package gocronlock lets schedulers of go-co-op/gocron/v2 run on many machines. With a
// Locker, one machine runs each tick of a job. With an Elector, one leader runs all jobs.
//
// The job's lock is renewed for as long as the job runs. So a job may take
// longer than the TTL. The TTL only limits how long a dead machine's lock
// stays taken (compare go-co-op/gocron-redis-lock#54 and go-co-op/gocron#799).
package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/tick"
)

// Locker is a [gocron.Locker]. At each tick of a job, only one of the schedulers with the same
// backend and prefix runs the job.
type Locker struct {
	client   *core.Client
	prefix   string
	schedule tick.Schedule
	opts     *tick.Options

	mu   sync.Mutex
	held map[string]*core.Lease // by job
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker whose locks are named prefix plus the job's name. Name jobs with
// gocron.WithName. The default name is that of a function, which two jobs may share. gocron does
// not say which tick it runs, so the Locker must know the schedule of its jobs: tick.Every for a
// DurationJob, or a Schedule of robfig/cron for a CronJob. Give jobs with another schedule a
// separate Locker by gocron.WithDistributedJobLocker.
func NewLocker(client *core.Client, prefix string, schedule tick.Schedule, opts *tick.Options) *Locker {
	return &Locker{client: client, prefix: prefix, schedule: schedule, opts: opts, held: map[string]*core.Lease{}}
}

// Lock implements gocron.Locker. If the job's previous run has not ended, Lock waits for that end,
// but only until [tick.Options].Late after the tick's time.
func (l *Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	due, err := tick.New(l.client, l.prefix+job, l.schedule, l.opts)
	if err != nil {
		return nil, err
	}
	t, err := due.Take(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[job] = t.Lease
	return &held{l, job, t.Lease}, nil
}

// Under returns a context that ends when the job's lock is lost, and the fencing token for the
// job's writes. gocron cannot pass the token to a job, and the ctx that gocron passes does not end
// with the lock. So the job's function must first call Under with gocron's ctx, and must call
// cancel at its end.
func (l *Locker) Under(ctx context.Context, job string) (_ context.Context, token uint64, cancel context.CancelFunc, err error) {
	l.mu.Lock()
	lease := l.held[job]
	l.mu.Unlock()
	if lease == nil {
		return nil, 0, nil, fmt.Errorf("job %q runs without its lock: %w", job, core.ErrNotHeld)
	}
	ctx, cancel = lease.Context(ctx)
	return ctx, lease.Token(), cancel, nil
}

type held struct {
	locker *Locker
	job    string
	lease  *core.Lease
}

// Unlock implements gocron.Lock.
func (h *held) Unlock(ctx context.Context) error {
	h.locker.mu.Lock()
	if h.locker.held[h.job] == h.lease {
		delete(h.locker.held, h.job)
	}
	h.locker.mu.Unlock()
	// gocron cancels ctx before it waits for its jobs to end, so ctx may have ended by now.
	return h.lease.Release(context.WithoutCancel(ctx))
}

// Elector is a [gocron.Elector]: only the scheduler that leads runs jobs.
//
// When a job is due, gocron asks the Elector. If the leadership is lost while a job runs, the job
// goes on at the same time as the next leader's jobs, unless it uses the ctx of Under. A [Locker]
// for each job avoids this overlap.
type Elector struct {
	term  atomic.Pointer[core.Term]
	ended chan struct{}
	err   error
}

var _ gocron.Elector = (*Elector)(nil)

var errFollower = errors.New("another scheduler leads")

// NewElector returns an Elector that campaigns until ctx ends, and then resigns. To end it, first
// call the scheduler's Shutdown, which waits for jobs. Then end ctx, and call Wait.
func NewElector(ctx context.Context, election *core.Elector) *Elector {
	e := &Elector{ended: make(chan struct{})}
	go func() {
		defer close(e.ended)
		e.err = election.Run(ctx, func(term *core.Term) {
			e.term.Store(term)
			<-term.Context().Done()
			e.term.Store(nil)
		})
	}()
	return e
}

// IsLeader implements gocron.Elector. It asks no store, but checks the term's deadline. So a
// leader whose machine was stopped until the deadline had passed does not count as leader.
func (e *Elector) IsLeader(context.Context) error {
	if term := e.term.Load(); term == nil || !term.Valid() {
		return errFollower
	}
	return nil
}

// Under is like [Locker.Under], for a job of the leader.
func (e *Elector) Under(ctx context.Context) (_ context.Context, token uint64, cancel context.CancelFunc, err error) {
	term := e.term.Load()
	if term == nil {
		return nil, 0, nil, fmt.Errorf("%w: %w", errFollower, core.ErrNotHeld)
	}
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(term.Context(), func() { end(context.Cause(term.Context())) })
	return ctx, term.Token(), func() { stop(); end(nil) }, nil
}

// Wait returns when the campaign has ended. It returns the error that ended
// the campaign, or nil if the campaign's ctx has ended.
func (e *Elector) Wait() error {
	<-e.ended
	if errors.Is(e.err, context.Canceled) || errors.Is(e.err, context.DeadlineExceeded) {
		return nil
	}
	return e.err
}
