package driver

import (
	"context"
	"slices"
	"time"
)

// WaiterOf returns b's [Waiter], nil when its properties do not declare it.
// The plugin client has every method, so a type assertion alone says nothing.
func WaiterOf(b Backend) Waiter { return powerOf[Waiter](b, PowerWaiter) }

// WatcherOf returns b's [Watcher], nil when its properties do not declare it.
func WatcherOf(b Backend) Watcher { return powerOf[Watcher](b, PowerWatcher) }

// BatcherOf returns b's [Batcher], nil when its properties do not declare it.
func BatcherOf(b Backend) Batcher { return powerOf[Batcher](b, PowerBatcher) }

// AdminOf returns b's [Admin], nil when its properties do not declare it.
func AdminOf(b Backend) Admin { return powerOf[Admin](b, PowerAdmin) }

// StarterOf returns b's [Starter], nil when its properties do not declare it.
func StarterOf(b Backend) Starter { return powerOf[Starter](b, PowerStarter) }

func powerOf[P any](b Backend, power Power) P {
	var none P
	if !slices.Contains(b.Properties().Powers, power) {
		return none
	}
	p, ok := b.(P)
	if !ok {
		return none
	}
	return p
}

// PollObserve is an [Elector.Observe] for a backend without a push channel: it
// inspects name every interval, or sooner when the holder's TTL runs out.
func PollObserve(ctx context.Context, l Lock, name string, every time.Duration, emit func(Holder)) error {
	var last Holder
	for first := true; ; first = false {
		h, err := l.Inspect(ctx, name)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		if first || changed(last, h) {
			emit(h)
			last = h
		}
		pause := every
		if h.TTL > 0 {
			pause = min(pause, h.TTL+time.Millisecond)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

func changed(a, b Holder) bool {
	return a.Owner != b.Owner || a.Token != b.Token || string(a.Value) != string(b.Value)
}
