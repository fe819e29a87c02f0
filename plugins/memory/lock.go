package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

func (b *backend) Check(ctx context.Context) error {
	if b.background.Err() != nil {
		return driver.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memory: %w: %w: %w", driver.ErrUnavailable, driver.ErrNotSent, err)
	}
	return nil
}

func (b *backend) locked(ctx context.Context, name string, do func(s *Store, e *entry, now time.Time) error) error {
	if err := b.Check(ctx); err != nil {
		return err
	}
	return b.store.do(name, do)
}

// held calls the function change if r's lease exists. Otherwise it returns a NotHeldError.
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
	return nil // a free lock has no waiters
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
			s.set(e, e.grant) // wakes observers, which wait for the old expiry
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

var errBroken = errors.New("memory: lease was broken by an operator")

func (b *backend) List(ctx context.Context, prefix string, emit func(driver.Holder) bool) error {
	if err := b.Check(ctx); err != nil {
		return err
	}
	for _, h := range b.store.list(prefix) {
		if !emit(h) {
			return nil
		}
	}
	return nil
}

func (s *Store) list(prefix string) []driver.Holder {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var held []driver.Holder
	for name, e := range s.names {
		if s.expire(e, now); e.grant != nil && strings.HasPrefix(name, prefix) {
			held = append(held, e.holder(now))
		}
	}
	return held
}

func (b *backend) Break(ctx context.Context, name string, token uint64) error {
	return b.locked(ctx, name, func(s *Store, e *entry, now time.Time) error {
		if e.grant == nil || e.grant.Token != token {
			return &driver.NotHeldError{Holder: e.holder(now)}
		}
		s.feeds.Announce(driver.Notice{Kind: driver.NoticeLost, Name: name, Owner: e.grant.Owner, Token: token, Err: errBroken})
		s.free(e, now)
		return nil
	})
}

func (b *backend) Watch(ctx context.Context, emit func(driver.Notice)) error {
	if err := b.Check(ctx); err != nil {
		return err
	}
	f := b.store.feeds.Open()
	defer f.Close()
	return f.Pass(ctx, b.background, emit)
}

func (b *backend) Proclaim(ctx context.Context, r driver.Request) error {
	return b.held(ctx, r, func(s *Store, e *entry, _ time.Time) error {
		e.grant.Value = slices.Clone(r.Value)
		s.set(e, e.grant)
		return nil
	})
}

func (b *backend) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	return kit.Follow(ctx, time.Hour, func() (h driver.Holder, changed <-chan struct{}, err error) {
		changed = b.store.changed.Next()
		h, err = b.Inspect(ctx, name)
		return h, changed, err
	}, emit)
}
