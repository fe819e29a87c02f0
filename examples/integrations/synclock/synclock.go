// Package synclock is a distributed lock as a [sync.Locker],
// for code that accepts only a sync.Locker.
//
// A sync.Locker protects less than a lease, so core has no type like Mutex. Lock has no context, so
// it waits for as long as the store is unreachable. Lock returns no error, so it panics if the lock
// cannot be granted. The holder of a sync.Locker never asks whether it still holds the lock. If the
// lease is lost (the machine slept, the network broke), the holder goes on working at the same time
// as the next holder, and no token shows the resource which writes are late. The only remedy is to
// end the process. The function lost, a parameter of New, should do so.
package synclock

import (
	"context"
	"fmt"
	"sync"

	"github.com/lockbench/lockbench/core"
)

// Mutex is a [sync.Locker]. Like a sync.Mutex it is not reentrant, and any
// goroutine may unlock it.
type Mutex struct {
	lock *core.Lock
	lost func(error)

	mu    sync.Mutex
	lease *core.Lease
	done  chan struct{} // closed by Unlock
}

var _ sync.Locker = (*Mutex)(nil)

// New returns a Mutex that uses lock. If the lease ends while the Mutex is locked, a separate
// goroutine calls lost. This function must not be nil, and should end the process.
func New(lock *core.Lock, lost func(cause error)) *Mutex {
	if lost == nil {
		panic("synclock: lost must not be nil")
	}
	return &Mutex{lock: lock, lost: lost}
}

// Lock waits until the lock is granted. It panics if the lock cannot be
// granted because the store refuses this client or the client was closed.
func (m *Mutex) Lock() {
	lease, err := m.lock.Acquire(context.Background())
	if err != nil {
		panic(fmt.Sprintf("synclock: %v", err))
	}
	done := make(chan struct{})
	m.mu.Lock()
	m.lease, m.done = lease, done
	m.mu.Unlock()
	go func() {
		select {
		case <-done:
		case <-lease.Done():
			select {
			case <-done: // Unlock closes done before it releases the lease
			default:
				m.lost(lease.Err())
			}
		}
	}()
}

// Unlock releases the lock. It panics if the Mutex is not locked. It waits until
// the store has confirmed the release or the lease has expired in the store.
func (m *Mutex) Unlock() {
	m.mu.Lock()
	lease, done := m.lease, m.done
	m.lease, m.done = nil, nil
	m.mu.Unlock()
	if lease == nil {
		panic("synclock: unlock of an unlocked Mutex")
	}
	close(done)
	_ = lease.Release(context.Background()) // a sync.Locker cannot report an error
}
