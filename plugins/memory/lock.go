package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// backend is one host's connection to a [Store].
type backend struct {
	store      *Store
	background *kit.Group
}

func (b *backend) Properties() driver.Properties {
	p := properties
	p.Capabilities = slices.Clone(p.Capabilities)
	return p
}

func (b *backend) Close(context.Context) error {
	b.background.End()
	b.store.changed.Up()
	return nil
}

// Check reports whether anything can be asked.
func (b *backend) Check(ctx context.Context) error {
	if b.background.Err() != nil {
		return driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memory: %w: %w: %w", driver.ErrUnavailable, driver.ErrNotSent, err)
	}
	return nil
}

// locked runs do, alone, on what the store knows of name.
func (b *backend) locked(ctx context.Context, name string, do func(s *Store, e *entry, now time.Time) error) error {
	if err := b.Check(ctx); err != nil {
		return err
	}
	return b.store.do(name, do)
}

// held is locked for the lease of r's Name, Owner and Token. If that is not there
// it returns a NotHeldError that says who has the lock.
func (b *backend) held(ctx context.Context, r driver.Request, change func(s *Store, e *entry, now time.Time) error) error {
	return b.locked(ctx, r.Name, func(s *Store, e *entry, now time.Time) error {
		if e.grant == nil || e.grant.Owner != r.Owner || e.grant.Token != r.Token {
			return &driver.NotHeldError{Holder: e.holder(now)}
		}
		return change(s, e, now)
	})
}

func (b *backend) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	err := b.locked(ctx, r.Name, func(s *Store, e *entry, now time.Time) error {
		if made := e.madeFor(r.Owner); made.Token != 0 {
			r.Token = made.Token
			e.grant.extend(r.TTL, now)
			return nil
		}
		if err := s.refusal(e, r, now); err != nil {
			return err
		}
		r.Token, r.Value = s.nextToken(now), slices.Clone(r.Value)
		s.set(e, &grant{Request: r, expires: now.Add(r.TTL)})
		return nil
	})
	if err != nil {
		return 0, err
	}
	return r.Token, nil
}

// refusal says why r is not granted, nil when it is to be.
func (s *Store) refusal(e *entry, r driver.Request, now time.Time) error {
	if s.withdrawn.Has(claim{r.Name, r.Owner}) {
		return driver.ErrWithdrawn
	}
	if p := e.find(r.Owner); p != nil {
		p.touched = now
	}
	if e.grant != nil {
		return &driver.HeldError{Holder: e.holder(now)}
	}
	return nil // and nobody waits
}

func (b *backend) Renew(ctx context.Context, r driver.Request) error {
	return b.held(ctx, r, func(_ *Store, e *entry, now time.Time) error {
		e.grant.extend(r.TTL, now)
		return nil
	})
}

func (b *backend) Release(ctx context.Context, r driver.Request) error {
	return b.held(ctx, r, func(s *Store, e *entry, now time.Time) error {
		if r.Keep <= 0 {
			s.free(e, now)
			return nil
		}
		if until := now.Add(r.Keep); until.Before(e.grant.expires) {
			e.grant.expires = until
			s.set(e, e.grant) // an observer waits for the expiry that it knows
		}
		return nil
	})
}

func (b *backend) Withdraw(ctx context.Context, name, owner string) error {
	return b.locked(ctx, name, func(s *Store, e *entry, now time.Time) error {
		s.withdrawn.Put(claim{name, owner}, struct{}{})
		e.leave(owner)
		if e.grant != nil && e.grant.Owner == owner {
			s.free(e, now)
		}
		return nil
	})
}

func (b *backend) Inspect(ctx context.Context, name string) (h driver.Holder, err error) {
	err = b.locked(ctx, name, func(_ *Store, e *entry, now time.Time) error {
		h = e.holder(now)
		return nil
	})
	return h, err
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
		case driver.OpWithdraw:
			results[i].Err = b.Withdraw(ctx, op.Name, op.Owner)
		default:
			results[i].Err = fmt.Errorf("memory: %w: operation %d", driver.ErrInvalid, op.Kind)
		}
	}
	return results
}
