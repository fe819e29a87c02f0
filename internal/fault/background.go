package explore

import (
	"context"
	"errors"
	"sync"
)

// background is what actions do until they are healed. Its methods may be called
// from any goroutine.
type background struct {
	mu   sync.Mutex
	ends map[Event][]func() error
}

// begin remembers how what an event has begun is ended.
func (b *background) begin(e Event, end func() error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ends == nil {
		b.ends = map[Event][]func() error{}
	}
	b.ends[e] = append(b.ends[e], end)
}

// end ends what an event has begun.
func (b *background) end(e Event) error {
	b.mu.Lock()
	ends := b.ends[e]
	delete(b.ends, e)
	b.mu.Unlock()
	var errs []error
	for _, end := range ends {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// HealAll ends what has not been healed of what events have begun.
func (w *System) HealAll() error {
	w.background.mu.Lock()
	var left []Event
	for e := range w.background.ends {
		left = append(left, e)
	}
	w.background.mu.Unlock()
	var errs []error
	for _, e := range left {
		errs = append(errs, w.background.end(e))
	}
	return errors.Join(errs...)
}

// end is the Heal of an action that has begun something.
func end(_ context.Context, w *System, e Event) error { return w.background.end(e) }

// whileRunning calls turn in the background, until it returns false or the event
// is healed, and last after that.
func (w *System) whileRunning(e Event, turn func(ctx context.Context) bool, last func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil && turn(ctx) {
		}
	})
	w.background.begin(e, func() error {
		cancel()
		running.Wait()
		return last()
	})
}
