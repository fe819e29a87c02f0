package load

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

// NewCore drives a backend through core.Client, as an application does. It
// owns b.
func NewCore(b driver.Backend, opts *core.Options) Locker {
	return &coreLocker{client: core.New(b, opts), backend: b}
}

type coreLocker struct {
	client  *core.Client
	backend driver.Backend
}

func (l *coreLocker) Lock(name string, ttl time.Duration) (Lock, error) {
	lock, err := l.client.Lock(name, &core.LockOptions{TTL: ttl})
	if err != nil {
		return nil, err
	}
	return &coreLock{locker: l, lock: lock, ttl: ttl}, nil
}

// Client is the client below, for what a [Locker] has no word for.
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

// TryAcquire implements [Trier].
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

// Renew asks the backend below the client, because the client renews on its
// own schedule and has no such method.
func (l *coreLease) Renew(ctx context.Context) error {
	return l.lock.locker.backend.Renew(ctx, driver.Request{
		Name: l.Name(), Owner: l.Owner(), Token: core.GrantNumber(l.Token()), TTL: l.lock.ttl,
	})
}
