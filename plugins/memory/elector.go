package memory

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

func (b *backend) Proclaim(ctx context.Context, r driver.Request) error {
	return b.held(ctx, r, func(s *Store, e *entry, _ time.Time) error {
		e.grant.Value = slices.Clone(r.Value)
		s.set(e, e.grant)
		return nil
	})
}

func (b *backend) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	var last driver.Holder
	for first := true; ; first = false {
		var h driver.Holder
		var changed <-chan struct{}
		err := b.locked(ctx, name, func(s *Store, e *entry, now time.Time) error {
			h, changed = e.holder(now), s.nextChange()
			return nil
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		if first || h.Owner != last.Owner || h.Token != last.Token || !bytes.Equal(h.Value, last.Value) {
			emit(h)
			last = h
		}
		var expiry <-chan time.Time
		if h.Held() {
			expiry = time.After(h.TTL)
		}
		select {
		case <-changed:
		case <-expiry:
		case <-ctx.Done():
			return ctx.Err()
		case <-b.done:
			return driver.ErrClosed
		}
	}
}
