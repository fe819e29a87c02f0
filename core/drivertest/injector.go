package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// injector stands between core and a backend, where a case fails, delays and
// counts calls. It declares no capabilities, so that every call comes through here.
type injector struct {
	driver.Backend

	mu     sync.Mutex
	before func(ctx context.Context, op string) error
	after  func(ctx context.Context, op string, err error) error
	calls  map[string][]time.Time
}

// The operations as an injector names them.
const (
	opAcquire  = "acquire"
	opRenew    = "renew"
	opRelease  = "release"
	opInspect  = "inspect"
	opProclaim = "proclaim"
)

func newInjector(b driver.Backend) *injector {
	return &injector{Backend: b, calls: map[string][]time.Time{}}
}

// set replaces what happens before a call, where an error keeps it from being
// sent, and after it, where an error replaces the reply. Nil: nothing.
func (g *injector) set(before func(context.Context, string) error, after func(context.Context, string, error) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.before, g.after = before, after
}

// times returns when the calls of op came in.
func (g *injector) times(op string) []time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.calls[op])
}

// total counts the calls of all operations.
func (g *injector) total() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, times := range g.calls {
		n += len(times)
	}
	return n
}

func (g *injector) pass(ctx context.Context, op string, f func() error) error {
	g.mu.Lock()
	g.calls[op] = append(g.calls[op], time.Now())
	before, after := g.before, g.after
	g.mu.Unlock()
	if before != nil {
		if err := before(ctx, op); err != nil {
			return err
		}
	}
	err := f()
	if after != nil {
		return after(ctx, op, err)
	}
	return err
}

func (g *injector) Properties() driver.Properties {
	p := g.Backend.Properties()
	p.Capabilities = nil
	return p
}

func (g *injector) TryAcquire(ctx context.Context, r driver.Request) (token uint64, err error) {
	err = g.pass(ctx, opAcquire, func() (err error) {
		token, err = g.Backend.TryAcquire(ctx, r)
		return err
	})
	if err != nil {
		return 0, err
	}
	return token, nil
}

func (g *injector) Renew(ctx context.Context, r driver.Request) error {
	return g.pass(ctx, opRenew, func() error { return g.Backend.Renew(ctx, r) })
}

func (g *injector) Release(ctx context.Context, r driver.Request) error {
	return g.pass(ctx, opRelease, func() error { return g.Backend.Release(ctx, r) })
}

func (g *injector) Withdraw(ctx context.Context, name, owner string) error {
	return g.pass(ctx, opRelease, func() error { return g.Backend.Withdraw(ctx, name, owner) })
}

func (g *injector) Inspect(ctx context.Context, name string) (h driver.Holder, err error) {
	err = g.pass(ctx, opInspect, func() (err error) {
		h, err = g.Backend.Inspect(ctx, name)
		return err
	})
	return h, err
}

func (g *injector) Proclaim(ctx context.Context, r driver.Request) error {
	return g.pass(ctx, opProclaim, func() error { return g.Backend.Proclaim(ctx, r) })
}

var errCut = errors.New("cut by the case")

// cut returns a hook that fails the calls of ops before they are sent, or all
// calls without ops.
func cut(ops ...string) func(context.Context, string) error {
	return only(ops, func(context.Context) error {
		return fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, driver.ErrNotSent, errCut)
	})
}

// silence is a hook that keeps calls from ever being answered.
func silence(ctx context.Context, _ string) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
}

// only runs f for the calls of ops, or for all calls without ops.
func only(ops []string, f func(context.Context) error) func(context.Context, string) error {
	return func(ctx context.Context, op string) error {
		if len(ops) == 0 || slices.Contains(ops, op) {
			return f(ctx)
		}
		return nil
	}
}
