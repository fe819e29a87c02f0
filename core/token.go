package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// A token is made of two numbers. The high bits are the number of the store's grant. The low bits
// count the hand-overs inside the host. They are 0 for the lease that the store granted, and grow
// by one with each hand-over under the same grant. So each lease has a higher token than every
// earlier lease, on any host.
const (
	handoverBits = 10
	maxHandovers = 1<<handoverBits - 1
	// Every valid grant number is less than maxGrant, so that the largest token fits into a signed
	// 64-bit column.
	maxGrant = 1 << 53
)

// GrantNumber returns the number of the store's grant to which a token belongs. Backends,
// and clients in other languages, call that number the token. All leases that a host
// hands over from goroutine to goroutine under one grant have the same grant number.
func GrantNumber(token uint64) uint64 { return token >> handoverBits }

// errGrantNumber means that the backend is broken, so that further tries are useless.
var errGrantNumber = errors.New("the backend is broken: a grant number is not below 2^53")

// tokenBackend is the backend that all other code of package core calls. The real backend knows
// only grant numbers. tokenBackend converts between grant numbers and the tokens that users see.
type tokenBackend struct {
	driver.Backend
	waiter   driver.Waiter
	notifier driver.Notifier
	observer driver.Observer
	watcher  driver.Watcher
	batcher  driver.Batcher
	admin    driver.Admin
}

func newTokenBackend(b driver.Backend) tokenBackend {
	return tokenBackend{b, driver.WaiterOf(b), driver.NotifierOf(b), driver.ObserverOf(b), driver.WatcherOf(b), driver.BatcherOf(b), driver.AdminOf(b)}
}

func (e tokenBackend) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	number, err := e.Backend.TryAcquire(ctx, r)
	return e.numbered(number, err)
}

// Wait must not be called if e.waiter is nil.
func (e tokenBackend) Wait(ctx context.Context, r driver.Request, max time.Duration) (driver.Grant, error) {
	g, err := e.waiter.Wait(ctx, r, max)
	g.Token, err = e.numbered(g.Token, err)
	return g, err
}

func (e tokenBackend) numbered(number uint64, err error) (token uint64, _ error) {
	if err == nil && number >= maxGrant {
		err = fmt.Errorf("%w: %s granted %d", errGrantNumber, e.Properties().Name, number)
	}
	if err != nil {
		return 0, translateError(err)
	}
	return number << handoverBits, nil
}

func (e tokenBackend) Renew(ctx context.Context, r driver.Request) error {
	r.Token = GrantNumber(r.Token)
	return translateError(e.Backend.Renew(ctx, r))
}

func (e tokenBackend) Release(ctx context.Context, r driver.Request) error {
	r.Token = GrantNumber(r.Token)
	return translateError(e.Backend.Release(ctx, r))
}

func (e tokenBackend) Proclaim(ctx context.Context, r driver.Request) error {
	r.Token = GrantNumber(r.Token)
	return translateError(e.Backend.Proclaim(ctx, r))
}

func (e tokenBackend) Inspect(ctx context.Context, name string) (Holder, error) {
	h, err := e.Backend.Inspect(ctx, name)
	return translateHolder(h), err
}

func (e tokenBackend) Observe(ctx context.Context, name string, emit func(Holder)) error {
	return e.observer.Observe(ctx, name, func(h Holder) { emit(translateHolder(h)) })
}

func (e tokenBackend) Watch(ctx context.Context, emit func(driver.Notice)) error {
	return e.watcher.Watch(ctx, func(n driver.Notice) {
		n.Token, n.Err = n.Token<<handoverBits, translateError(n.Err)
		emit(n)
	})
}

// Batch modifies its argument ops. It converts the tokens in ops to grant numbers.
func (e tokenBackend) Batch(ctx context.Context, ops []driver.Op) []driver.Result {
	for i := range ops {
		ops[i].Token = GrantNumber(ops[i].Token)
	}
	results := e.batcher.Batch(ctx, ops)
	for i := range results {
		results[i].Token, results[i].Err = results[i].Token<<handoverBits, translateError(results[i].Err)
	}
	return results
}

func (e tokenBackend) List(ctx context.Context, prefix string, emit func(Holder) bool) error {
	return e.admin.List(ctx, prefix, func(h Holder) bool { return emit(translateHolder(h)) })
}

func (e tokenBackend) Break(ctx context.Context, name string, token uint64) error {
	return translateError(e.admin.Break(ctx, name, GrantNumber(token)))
}

func translateHolder(h Holder) Holder {
	h.Token <<= handoverBits
	return h
}

// translateError returns err. If err has a Holder, a token replaces the Holder's grant number.
func translateError(err error) error {
	if err == nil {
		return nil
	}
	if held, ok := errors.AsType[*HeldError](err); ok && held.Holder.Token != 0 {
		return &translatedError{err, &HeldError{Holder: translateHolder(held.Holder)}}
	}
	if gone, ok := errors.AsType[*NotHeldError](err); ok && gone.Holder.Token != 0 {
		return &translatedError{err, &NotHeldError{Holder: translateHolder(gone.Holder)}}
	}
	return err
}

// translatedError wraps a backend's error. A Holder that errors.As finds in it has the token that
// users see. The backend's error is not modified, because other callers may have the same error.
type translatedError struct {
	error
	holder error
}

func (e *translatedError) Unwrap() error      { return e.error }
func (e *translatedError) As(target any) bool { return errors.As(e.holder, target) }
