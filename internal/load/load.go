// Package load drives whatever grants locks: our client, or a library that is
// measured beside it. Scenarios know only the interfaces here.
package load

import (
	"context"
	"errors"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/results"
)

// Locker grants locks of one backend or library to the callers of one host.
// It may be used by any number of goroutines.
type Locker interface {
	// Lock prepares the lock name for one caller. Nothing is sent.
	Lock(name string, ttl time.Duration) (Lock, error)
	// Close releases what is held and ends connections.
	Close(ctx context.Context) error
}

// Lock is one lock as one caller sees it, used by one goroutine at a time.
type Lock interface {
	// Acquire waits until the lock is granted or ctx ends.
	Acquire(ctx context.Context) (Lease, error)
}

// Trier is a Lock that can also ask just once.
type Trier interface {
	// TryAcquire returns an error wrapping driver.ErrHeld when another owner
	// has the lock.
	TryAcquire(ctx context.Context) (Lease, error)
}

// Untimed is a Lease whose end in the store is not known here: it renews itself
// at times of its own, or has no TTL.
type Untimed interface{ Untimed() }

// Lease is a held lock.
type Lease interface {
	// Token is the fencing token; zero where there is none.
	Token() uint64
	// Renew lets the lease live for another TTL, in one round trip.
	Renew(ctx context.Context) error
	// Release gives the lock back.
	Release(ctx context.Context) error
}

// Timed is a Lease of another process, where its times were taken, on the
// run's clock.
type Timed interface {
	// Granted is when the acquire was called and when it came back.
	Granted() (asked, answered int64)
	// Released is when the release was called and when it came back.
	Released() (ended, done int64)
}

// OutcomeOf classifies what Acquire returned.
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
