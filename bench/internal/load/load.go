// Package load acquires, renews and releases locks for measurements, with lockbench's own client or
// with another library. Scenarios (measurements) use locks through the interfaces of this package.
package load

import (
	"context"
	"errors"
	"time"

	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

// Locker grants locks of one backend or library to the callers of one host. Any
// number of goroutines may use it.
type Locker interface {
	// Lock prepares the lock with the given name for one caller, without a request to the store.
	Lock(name string, ttl time.Duration) (Lock, error)
	// Close releases held locks and ends connections.
	Close(ctx context.Context) error
}

// Lock is one lock for one caller. Only one goroutine may use it at a time.
type Lock interface {
	// Acquire waits until the lock is granted or ctx ends.
	Acquire(ctx context.Context) (Lease, error)
}

// Trier is a [Lock] that can also be tried once, without waiting.
type Trier interface {
	// TryAcquire returns an error wrapping driver.ErrHeld if another owner has the lock.
	TryAcquire(ctx context.Context) (Lease, error)
}

// Untimed is a [Lease] whose end in the store is unknown to the caller. Either the library renews
// the lease at unknown times, or the lease has no TTL.
type Untimed interface{ Untimed() }

// Lease is a held lock.
type Lease interface {
	// Token is the fencing token, or zero if there is none.
	Token() uint64
	// Renew makes the lease last for one TTL from now. It takes one round trip.
	Renew(ctx context.Context) error
	Release(ctx context.Context) error
}

// Timed is a [Lease] that another process holds. That process calls acquire and release, and
// measures their times on the run's clock.
type Timed interface {
	// Granted returns when the acquire was called and when it returned.
	Granted() (asked, answered int64)
	// Released returns when the release was called and when it returned.
	Released() (ended, done int64)
}

func OutcomeOf(err error) results.Outcome {
	switch {
	case err == nil:
		return results.Granted
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return results.Cancelled
	case errors.Is(err, driver.ErrHeld):
		return results.Refused
	}
	return results.Failed
}

// NewCore returns a Locker that uses a backend through core.Client, as applications do. Closing the
// Locker closes the backend b.
func NewCore(b driver.Backend, opts *core.Options) Locker {
	return &coreLocker{client: core.New(b, opts), backend: b}
}

type coreLocker struct {
	client  *core.Client
	backend driver.Backend
}

func (l *coreLocker) Lock(name string, ttl time.Duration) (Lock, error) {
	return l.LockWith(name, &core.LockOptions{TTL: ttl})
}

// LockWith is like Lock, but with all options of package core.
func (l *coreLocker) LockWith(name string, o *core.LockOptions) (Lock, error) {
	lock, err := l.client.Lock(name, o)
	if err != nil {
		return nil, err
	}
	return &coreLock{locker: l, lock: lock, ttl: o.TTL}, nil
}

// Client returns the core client, which elections need.
func (l *coreLocker) Client() *core.Client { return l.client }

func (l *coreLocker) Close(ctx context.Context) error { return l.client.Close(ctx) }

type coreLock struct {
	locker *coreLocker
	lock   *core.Lock
	ttl    time.Duration
}

func (l *coreLock) Acquire(ctx context.Context) (Lease, error) {
	return l.held(l.lock.Acquire(ctx))
}

func (l *coreLock) TryAcquire(ctx context.Context) (Lease, error) {
	return l.held(l.lock.TryAcquire(ctx))
}

func (l *coreLock) held(lease *core.Lease, err error) (Lease, error) {
	if err != nil {
		return nil, err
	}
	return &coreLease{Lease: lease, lock: l}, nil
}

type coreLease struct {
	*core.Lease
	lock *coreLock
}

// Renew calls the backend directly, because core renews leases by a timer, and never on request.
func (l *coreLease) Renew(ctx context.Context) error {
	return l.lock.locker.backend.Renew(ctx, driver.Request{
		Name: l.Name(), Owner: l.Owner(), Token: core.GrantNumber(l.Token()), TTL: l.lock.ttl,
	})
}
