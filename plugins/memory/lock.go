package memory

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/millis"
)

// backend is one host's connection to a [Store].
type backend struct {
	store *Store
	once  sync.Once
	done  chan struct{} // closed by Close
}

func (b *backend) Check(ctx context.Context) error { return b.ready(ctx) }

func (b *backend) Properties() driver.Properties {
	p := properties
	p.Capabilities = slices.Clone(p.Capabilities)
	return p
}

func (b *backend) Close(context.Context) error {
	b.once.Do(func() { close(b.done) })
	return nil
}

func (b *backend) ready(ctx context.Context) error {
	select {
	case <-b.done:
		return driver.ErrClosed
	default:
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memory: %w: %w: %w", driver.ErrUnavailable, driver.ErrNotSent, err)
	}
	return nil
}

func (b *backend) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	var token uint64
	err := b.locked(ctx, r.Name, func(e *entry, now time.Time) error {
		err := b.store.refusal(e, r, now)
		if err == nil {
			token = b.store.grant(e, r, now)
		}
		return err
	})
	return token, err
}

// locked runs do, alone, on what the store knows of name.
func (b *backend) locked(ctx context.Context, name string, do func(e *entry, now time.Time) error) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	e := s.at(name, now)
	defer s.tidy(name, e)
	return do(e, now)
}

// refusal says why r is not granted, nil when it is to be.
func (s *Store) refusal(e *entry, r driver.Request, now time.Time) error {
	if s.isWithdrawn(r.Name, r.Owner, now) {
		return driver.ErrWithdrawn
	}
	e.touch(r.Owner, now)
	if e.grant != nil {
		return &driver.HeldError{Holder: e.holder(r.Name, now)}
	}
	if next := e.head(); next != nil && next.owner != r.Owner {
		return &driver.HeldError{Holder: driver.Holder{
			Name: r.Name, Owner: next.owner, Label: next.label,
			TTL: millis.Up(next.touched.Add(placeFor).Sub(now)), Waiters: len(e.queue),
		}}
	}
	return nil
}

func (s *Store) grant(e *entry, r driver.Request, now time.Time) uint64 {
	e.leave(r.Owner)
	e.set(&grant{
		owner: r.Owner, label: r.Label, value: slices.Clone(r.Value),
		token: s.nextToken(now), expires: now.Add(r.TTL),
	})
	return e.grant.token
}

// held runs change on the lease of r's Name, Owner and Token, or returns a
// NotHeldError that says who has it.
func (b *backend) held(ctx context.Context, r driver.Request, change func(e *entry, now time.Time) error) error {
	return b.locked(ctx, r.Name, func(e *entry, now time.Time) error {
		if e.grant == nil || e.grant.owner != r.Owner || e.grant.token != r.Token {
			return &driver.NotHeldError{Holder: e.holder(r.Name, now)}
		}
		return change(e, now)
	})
}

func (b *backend) Renew(ctx context.Context, r driver.Request) error {
	return b.held(ctx, r, func(e *entry, now time.Time) error {
		e.grant.expires = now.Add(r.TTL)
		return nil
	})
}

func (b *backend) Release(ctx context.Context, r driver.Request) error {
	if r.Token == 0 {
		return b.withdraw(ctx, r)
	}
	return b.held(ctx, r, func(e *entry, now time.Time) error {
		if r.Keep <= 0 {
			e.free(now)
			return nil
		}
		if until := now.Add(r.Keep); until.Before(e.grant.expires) {
			e.grant.expires = until
			e.changed() // an observer waits for the expiry that it knows
		}
		return nil
	})
}

func (b *backend) withdraw(ctx context.Context, r driver.Request) error {
	return b.locked(ctx, r.Name, func(e *entry, now time.Time) error {
		b.store.bury(r.Name, r.Owner, now)
		e.leave(r.Owner)
		switch {
		case e.grant == nil:
			e.wakeHead(now)
		case e.grant.owner == r.Owner:
			e.free(now)
		}
		return nil
	})
}

// free ends the grant and wakes the next waiter.
func (e *entry) free(now time.Time) {
	e.set(nil)
	e.wakeHead(now)
}

func (b *backend) Inspect(ctx context.Context, name string) (driver.Holder, error) {
	if err := b.ready(ctx); err != nil {
		return driver.Holder{}, err
	}
	return b.store.inspect(name), nil
}

func (s *Store) inspect(name string) driver.Holder {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	e := s.at(name, now)
	defer s.tidy(name, e)
	return e.holder(name, now)
}

func (b *backend) Batch(ctx context.Context, ops []driver.Op) []driver.Result {
	results := make([]driver.Result, len(ops))
	for i, op := range ops {
		switch op.Kind {
		case driver.OpAcquire:
			results[i].Token, results[i].Err = b.TryAcquire(ctx, op.Request)
		case driver.OpRenew:
			results[i].Err = b.Renew(ctx, op.Request)
		case driver.OpRelease:
			results[i].Err = b.Release(ctx, op.Request)
		default:
			results[i].Err = fmt.Errorf("memory: %w: operation %d", driver.ErrInvalid, op.Kind)
		}
	}
	return results
}
