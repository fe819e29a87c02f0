package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// WaiterOf returns b's [Waiter], nil when its properties do not declare it.
// The plugin client has every method, so a type assertion alone says nothing.
func WaiterOf(b Backend) Waiter { return capabilityOf[Waiter](b, CapWaiter) }

// WaitAcquirerOf returns b or, when it needs two calls for it, a WaitAcquirer
// that makes them; nil when b's properties do not declare a [Waiter].
func WaitAcquirerOf(b Backend) WaitAcquirer {
	w := WaiterOf(b)
	if w == nil {
		return nil
	}
	if wa, ok := b.(WaitAcquirer); ok {
		return wa
	}
	return twoCalls{b, w}
}

// twoCalls is a WaitAcquirer for a backend that is none.
type twoCalls struct {
	lock   Lock
	waiter Waiter
}

func (c twoCalls) WaitAcquire(ctx context.Context, r Request, max time.Duration) (uint64, time.Duration, time.Duration, error) {
	return WaitAcquire(ctx, c.lock, c.waiter, r, max)
}

// waitSlack is how much longer than asked the Wait of a WaitAcquire may take: one
// that hangs must not hold up K4, nor take the time of the TryAcquire.
const waitSlack = time.Second

// AcquireBudget bounds a TryAcquire for a lease of ttl: 10 ms to 3 s. A grant
// that takes longer than its TTL is of no use.
func AcquireBudget(ttl time.Duration) time.Duration {
	return min(max(ttl, 10*time.Millisecond), 3*time.Second)
}

// WaitAcquireBudget bounds a WaitAcquire that waits for most.
func WaitAcquireBudget(ttl, most time.Duration) time.Duration {
	return most + waitSlack + AcquireBudget(ttl)
}

// WaitAcquire does what a [WaitAcquirer] does, with w.Wait and l.TryAcquire. It
// returns the store's own grant also when ctx has ended: there is one.
func WaitAcquire(ctx context.Context, l Lock, w Waiter, r Request, most time.Duration) (token uint64, waited, span time.Duration, err error) {
	began := time.Now()
	wctx, stop := context.WithTimeout(ctx, most+waitSlack)
	g, err := w.Wait(wctx, r, most)
	stop()
	if err == nil {
		if err = ctx.Err(); g.Token != 0 && (err != nil || g.lasts(r)) {
			return g.Token, g.Sent.Sub(began), g.For, nil
		}
	}
	waited = time.Since(began)
	if err != nil {
		return 0, waited, 0, unsent(err)
	}
	bounded, cancel := context.WithTimeout(ctx, AcquireBudget(r.TTL))
	defer cancel()
	token, err = l.TryAcquire(bounded, r)
	return token, waited, 0, err
}

// lasts reports whether g may be used without asking first. More than half of it
// must be left, or the renewal could come too late. It is too short for a lock
// that must stay taken (Keep) although its holder's machine is lost.
func (g Grant) lasts(r Request) bool {
	return time.Since(g.Sent) < g.For/2 && r.Keep == 0
}

// unsent adds to the error of a Wait that no acquire followed it.
func unsent(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w (%w): %w", ErrUnavailable, ErrNotSent, err)
	}
	return fmt.Errorf("%w: %w", ErrNotSent, err)
}

// WatcherOf returns b's [Watcher], nil when its properties do not declare it.
func WatcherOf(b Backend) Watcher { return capabilityOf[Watcher](b, CapWatcher) }

// BatcherOf returns b's [Batcher], nil when its properties do not declare it.
func BatcherOf(b Backend) Batcher { return capabilityOf[Batcher](b, CapBatcher) }

// AdminOf returns b's [Admin], nil when its properties do not declare it.
func AdminOf(b Backend) Admin { return capabilityOf[Admin](b, CapAdmin) }

// StarterOf returns b's [Starter], nil when its properties do not declare it.
func StarterOf(b Backend) Starter { return capabilityOf[Starter](b, CapStarter) }

func capabilityOf[P any](b Backend, capability Capability) P {
	var none P
	if !slices.Contains(b.Properties().Capabilities, capability) {
		return none
	}
	p, ok := b.(P)
	if !ok {
		return none
	}
	return p
}

// ObserverOf returns b, or an Observer that asks b when its properties declare none.
func ObserverOf(b Backend) Observer {
	if o := capabilityOf[Observer](b, CapObserver); o != nil {
		return o
	}
	return asking{b}
}

// asking is an Observer for a backend that is none.
type asking struct{ lock Lock }

const (
	askEvery = 100 * time.Millisecond
	// askFor bounds a question: one that is lost with its server is never answered.
	askFor = 2 * time.Second
)

// Observe inspects name every askEvery, or sooner when the holder's TTL runs out.
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
