package driver

import (
	"context"
	"slices"
	"time"
)

// WaiterOf returns b as a [Waiter], or nil if b's properties do not declare that capability. A type
// assertion is not enough, because the plugin client always has the methods of all capabilities.
func WaiterOf(b Backend) Waiter { return capabilityOf[Waiter](b, CapWaiter) }

// NotifierOf returns b as a [Notifier], or nil if b's properties do not declare that capability.
func NotifierOf(b Backend) Notifier { return capabilityOf[Notifier](b, CapNotifier) }

// WatcherOf returns b as a [Watcher], or nil if b's properties do not declare that capability.
func WatcherOf(b Backend) Watcher { return capabilityOf[Watcher](b, CapWatcher) }

// BatcherOf returns b as a [Batcher], or nil if b's properties do not declare that capability.
func BatcherOf(b Backend) Batcher { return capabilityOf[Batcher](b, CapBatcher) }

// AdminOf returns b as an [Admin], or nil if b's properties do not declare that capability.
func AdminOf(b Backend) Admin { return capabilityOf[Admin](b, CapAdmin) }

// StarterOf returns b as a [Starter], or nil if b's properties do not declare that capability.
func StarterOf(b Backend) Starter { return capabilityOf[Starter](b, CapStarter) }

func capabilityOf[P any](b Backend, capability Capability) (p P) {
	if slices.Contains(b.Properties().Capabilities, capability) {
		p, _ = b.(P)
	}
	return p
}

// ObserverOf returns b as an [Observer], or an Observer that polls b if b lacks that capability.
func ObserverOf(b Backend) Observer {
	if o := capabilityOf[Observer](b, CapObserver); o != nil {
		return o
	}
	return asking{b}
}

// asking polls the lock with Inspect.
type asking struct{ lock Lock }

const (
	askEvery = 100 * time.Millisecond
	// askFor limits the time of one Inspect, because a server that has died never answers.
	askFor = 2 * time.Second
)

// Observe calls Inspect again after askEvery, or sooner if the holder's TTL ends sooner.
func (a asking) Observe(ctx context.Context, name string, emit func(Holder)) error {
	var last Holder
	for first := true; ; first = false {
		question, cancel := context.WithTimeout(ctx, askFor)
		h, err := a.lock.Inspect(question, name)
		cancel()
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
		pause := askEvery
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
