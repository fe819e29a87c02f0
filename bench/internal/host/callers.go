package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/bench/internal/results"
)

// Lock implements [load.Locker]. The host's process calls the methods of the lock, and measures how
// long they take. So the times do not include messages between the processes.
func (p *Process) Lock(name string, ttl time.Duration) (load.Lock, error) {
	return &calledLock{p, name, ttl}, nil
}

type calledLock struct {
	p    *Process
	name string
	ttl  time.Duration
}

func (l *calledLock) Acquire(ctx context.Context) (load.Lease, error) {
	grant, err := l.p.ask(ctx, order{Op: opAcquireOne, Name: l.name, TTL: l.ttl})
	if err != nil {
		return nil, err
	}
	return &calledLease{p: l.p, grant: grant}, nil
}

type calledLease struct {
	p              *Process
	grant, release note
}

func (l *calledLease) Token() uint64 { return l.grant.Token }

// Renew always fails, because there is no order that makes a host renew a lease.
func (l *calledLease) Renew(context.Context) error { return errors.ErrUnsupported }

func (l *calledLease) Release(context.Context) (err error) {
	l.release, err = l.p.ask(context.Background(), order{Op: opReleaseOne, Target: l.grant.ID})
	return err
}

// Granted implements [load.Timed], with times measured in the host process.
func (l *calledLease) Granted() (asked, answered int64) { return l.grant.From, l.grant.To }

// Released implements [load.Timed], with times measured in the host process.
func (l *calledLease) Released() (ended, done int64) { return l.release.From, l.release.To }

// Cycle makes callers in the host's process acquire and release locks in a loop, without messages
// to this process. It returns when all callers are done, or have stopped because ctx ended. The
// error is the first error of any caller. The records of the attempts stay in the host's process
// until [Process.Attempts] fetches them. Sending them earlier would take processor time from hosts
// that still measure.
func (p *Process) Cycle(ctx context.Context, c load.Cycles) error {
	_, err := p.ask(ctx, order{Op: opCycle, Cycles: &c})
	return err
}

// Attempts fetches the attempts of the last [Process.Cycle]. If it returns an error, these attempts
// are lost.
func (p *Process) Attempts() ([]results.Attempt, error) {
	n, err := p.ask(context.Background(), order{Op: opAttempts})
	if err != nil {
		return nil, fmt.Errorf("host: attempts: %w", err)
	}
	return n.Attempts, nil
}

func (a *agent) acquireOne(ctx context.Context, o order) (n note) {
	lock, err := a.present().Lock(o.Name, o.TTL)
	var lease load.Lease
	n.From = a.clock.Now()
	if err == nil {
		lease, err = lock.Acquire(ctx)
	}
	n.To = a.clock.Now()
	if n.fail(err); err != nil {
		return n
	}
	n.Token = lease.Token()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leases[o.ID] = lease
	return n
}

func (a *agent) releaseOne(o order) (n note) {
	a.mu.Lock()
	lease := a.leases[o.Target]
	delete(a.leases, o.Target)
	a.mu.Unlock()
	n.From = a.clock.Now()
	n.fail(lease.Release(context.Background()))
	n.To = a.clock.Now()
	return n
}

func (a *agent) cycle(ctx context.Context, o order) (n note) {
	attempts, err := o.Cycles.Run(ctx, a.present(), a.clock)
	n.fail(err)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.attempts = attempts
	return n
}
