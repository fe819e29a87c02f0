package memory

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// errBroken is the cause in the notice of a lease that Break has ended.
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
	for {
		select {
		case <-f.More():
		case <-ctx.Done():
			return ctx.Err()
		case <-b.background.Done():
			return driver.ErrClosed
		}
		for _, n := range f.Take() {
			emit(n)
		}
	}
}
