// Package certmagiclock gives a certmagic cluster distributed locks, so that its machines take
// turns. The certificates can be in a storage of any kind.
package certmagiclock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/lockbench/lockbench/core"
)

// Storage is a [certmagic.Storage] that replaces the locks of another Storage.
//
// certmagic cannot pass a token to its storage. So a machine that was stopped until its
// lease had ended may still write a certificate. certmagic tolerates such late writes.
type Storage struct {
	certmagic.Storage

	client *core.Client
	prefix string
	opts   *core.LockOptions

	mu   sync.Mutex
	held map[string][]*core.Lease // by name; only the last lease of a name may be valid
}

var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// New returns a Storage that keeps certificates in the storage s and takes its locks from client.
func New(s certmagic.Storage, client *core.Client, prefix string, opts *core.LockOptions) *Storage {
	return &Storage{Storage: s, client: client, prefix: prefix, opts: opts, held: map[string][]*core.Lease{}}
}

// Lock implements certmagic.Locker.
func (s *Storage) Lock(ctx context.Context, name string) error {
	return s.lock(ctx, name, (*core.Lock).Acquire)
}

// TryLock implements certmagic.TryLocker.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	err := s.lock(ctx, name, (*core.Lock).TryAcquire)
	if errors.Is(err, core.ErrHeld) {
		return false, nil
	}
	return err == nil, err
}

func (s *Storage) lock(ctx context.Context, name string, take func(*core.Lock, context.Context) (*core.Lease, error)) error {
	lock, err := s.client.Lock(s.prefix+name, s.opts)
	if err != nil {
		return err
	}
	lease, err := take(lock, ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[name] = append(s.held[name], lease)
	return nil
}

// Unlock implements certmagic.Locker. A caller names only the lock, not its lease. If this process
// lost a lease and was then granted the lock again, the first Unlock counts for the lost lease, and
// releases nothing. In this way, no caller can release the lease of another caller.
func (s *Storage) Unlock(ctx context.Context, name string) error {
	lease := s.pop(name)
	if lease == nil {
		return fmt.Errorf("unlock %q: %w", name, core.ErrNotHeld)
	}
	if err := lease.Release(context.WithoutCancel(ctx)); !errors.Is(err, core.ErrNotHeld) {
		return err
	}
	return nil
}

func (s *Storage) pop(name string) *core.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.held[name]
	if len(all) == 0 {
		return nil
	}
	if s.held[name] = all[1:]; len(all) == 1 {
		delete(s.held, name)
	}
	return all[0]
}

// RenewLockLease implements certmagic.LockLeaseRenewer. The client renews the lease in the
// background, with the lock's TTL, so RenewLockLease only reports whether the lease is still valid.
func (s *Storage) RenewLockLease(_ context.Context, name string, _ time.Duration) error {
	var lease *core.Lease
	s.mu.Lock()
	if all := s.held[name]; len(all) > 0 {
		lease = all[len(all)-1]
	}
	s.mu.Unlock()
	switch {
	case lease == nil:
		return fmt.Errorf("renew %q: %w", name, core.ErrNotHeld)
	case lease.Err() != nil:
		return fmt.Errorf("renew %q: %w", name, lease.Err())
	case !lease.Valid():
		return fmt.Errorf("renew %q: %w", name, core.ErrExpired)
	}
	return nil
}
