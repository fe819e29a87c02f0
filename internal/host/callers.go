package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/record"
)

// Lock implements [load.Locker]: what callers here do with the lock is done in
// the process. The times of its leases are taken there too, so that the way here
// and back does not count.
func (p *Process) Lock(name string, ttl time.Duration) (load.Lock, error) {
	return &calledLock{p, lockSpec{name, ttl}}, nil
}

// lockSpec is a lock that an order is about.
type lockSpec struct {
	Name string        `json:"name"`
	TTL  time.Duration `json:"ttl_ns"`
}

type calledLock struct {
	p    *Process
	spec lockSpec
}

// Acquire implements [load.Lock].
func (l *calledLock) Acquire(ctx context.Context) (load.Lease, error) {
	grant, err := l.p.ask(ctx, order{Op: opAcquire, Lock: &l.spec})
	if err != nil {
		return nil, err
	}
	return &calledLease{p: l.p, grant: grant}, nil
}

type calledLease struct {
	p              *Process
	grant, release line
}

func (l *calledLease) Token() uint64 { return l.grant.Token }

// Renew is not among what these processes do.
func (l *calledLease) Renew(context.Context) error { return errors.ErrUnsupported }

func (l *calledLease) Release(context.Context) (err error) {
	l.release, err = l.p.ask(context.Background(), order{Op: opRelease, Target: l.grant.ID})
	return err
}

// Granted implements [load.Timed].
func (l *calledLease) Granted() (asked, answered int64) { return l.grant.From, l.grant.To }

// Released implements [load.Timed].
func (l *calledLease) Released() (ended, done int64) { return l.release.From, l.release.To }

// Cycle lets callers cycle in the process, without a word to it in between, and
// returns when the last of them is done; the end of ctx is passed on. The error
// is the first that one of them met. What they have recorded stays there until
// [Process.Attempts] is called.
//
// Note: attempts that were sent as they come, or at the end of each host's own
// loop, would cost the other hosts processor time that is being measured.
func (p *Process) Cycle(ctx context.Context, c load.Cycles) error {
	_, err := p.ask(ctx, order{Op: opCycle, Cycles: &c})
	return err
}

// Attempts are those of the last [Process.Cycle]. An error means that they are
// lost.
func (p *Process) Attempts() ([]record.Attempt, error) {
	l, err := p.ask(context.Background(), order{Op: opAttempts})
	if err != nil {
		return nil, fmt.Errorf("host: attempts: %w", err)
	}
	return l.Attempts, nil
}
