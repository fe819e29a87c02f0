package memory

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

func (b *backend) Proclaim(ctx context.Context, r driver.Request) error {
	return b.held(ctx, r, func(e *entry, _ time.Time) error {
		e.grant.value = slices.Clone(r.Value)
		e.changed()
		return nil
	})
}

func (b *backend) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	s, changed := b.store, make(chan struct{}, 1)
	s.subscribe(name, changed)
	defer s.unsubscribe(name, changed)
	var last driver.Holder
	for first := true; ; first = false {
		h := s.inspect(name)
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

func (s *Store) subscribe(name string, changed chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at(name, time.Now()).observers[changed] = true
}

func (s *Store) unsubscribe(name string, changed chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.at(name, time.Now())
	delete(e.observers, changed)
	s.tidy(name, e)
}
