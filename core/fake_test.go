package core

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// fake is a backend whose store is a map. A test can delay each call, make
// it fail before it reaches the store, or replace its reply.
type fake struct {
	props driver.Properties
	// The hook before runs before a call reaches the store. If it returns an error, the call fails.
	before func(ctx context.Context, op string, r driver.Request) error
	// The hook after runs after the store has executed a call. Its error, if any, replaces the answer.
	after   func(ctx context.Context, op string, r driver.Request) error
	notices chan driver.Notice
	// own is the lifetime of a grant to a waiter that sent no acquire. If own is zero, the store only
	// wakes waiters. The field age is the time from the waiter's last sign of life to the grant.
	own, age time.Duration

	mu        sync.Mutex
	held      map[string]*grantOf
	withdrawn map[string]bool
	last      uint64
	calls     []asked
	changed   chan struct{}
	closed    bool
}

type asked struct {
	op, name string
	at       time.Time
}

type grantOf struct {
	r       driver.Request
	expires time.Time
	own     bool // the store made the grant without an acquire, and no request has confirmed it
}

func newFake(capabilities ...driver.Capability) *fake {
	return &fake{
		props: driver.Properties{
			Name: "fake", Fencing: driver.FencingStrict, Scope: driver.ScopeHost, SurvivesPlugin: true,
			TTLMin: 10 * time.Millisecond, TTLStep: time.Millisecond, TTLMax: time.Hour, Capabilities: capabilities,
		},
		notices: make(chan driver.Notice, 16),
		held:    map[string]*grantOf{}, withdrawn: map[string]bool{}, changed: make(chan struct{}),
	}
}

func (f *fake) do(ctx context.Context, op string, r driver.Request, store func() error) error {
	f.mu.Lock()
	f.calls = append(f.calls, asked{op, r.Name, time.Now()})
	before := f.before
	f.mu.Unlock()
	if before != nil {
		if err := before(ctx, op, r); err != nil {
			return err
		}
	}
	f.mu.Lock()
	err := store()
	close(f.changed)
	f.changed = make(chan struct{})
	after := f.after
	f.mu.Unlock()
	if after != nil {
		if err := after(ctx, op, r); err != nil {
			return err
		}
	}
	return err
}

func (f *fake) live(name string) *grantOf {
	g := f.held[name]
	if g == nil || !time.Now().Before(g.expires) {
		return nil
	}
	return g
}

func (g *grantOf) holder() driver.Holder {
	if g == nil {
		return driver.Holder{}
	}
	return driver.Holder{
		Name: g.r.Name, Owner: g.r.Owner, Label: g.r.Label, Value: g.r.Value, Token: g.r.Token,
		TTL: time.Until(g.expires), Waiters: -1,
	}
}

func (f *fake) take(r driver.Request) (uint64, error) {
	if f.withdrawn[r.Owner] {
		return 0, driver.ErrWithdrawn
	}
	if g := f.live(r.Name); g != nil {
		if g.own && g.r.Owner == r.Owner {
			g.own, g.expires = false, time.Now().Add(r.TTL)
			return g.r.Token, nil
		}
		return 0, &HeldError{Holder: g.holder()}
	}
	f.last++
	r.Token = f.last
	f.held[r.Name] = &grantOf{r: r, expires: time.Now().Add(r.TTL)}
	return r.Token, nil
}

func (f *fake) mine(r driver.Request) (*grantOf, error) {
	g := f.live(r.Name)
	if g == nil || g.r.Owner != r.Owner || g.r.Token != r.Token {
		return nil, &NotHeldError{Holder: g.holder()}
	}
	return g, nil
}

func (f *fake) TryAcquire(ctx context.Context, r driver.Request) (token uint64, err error) {
	err = f.do(ctx, "acquire", r, func() error {
		token, err = f.take(r)
		return err
	})
	return token, err
}

func (f *fake) Renew(ctx context.Context, r driver.Request) error {
	return f.do(ctx, "renew", r, func() error { return f.extend(r) })
}

func (f *fake) extend(r driver.Request) error {
	g, err := f.mine(r)
	if err == nil {
		g.own, g.expires = false, time.Now().Add(r.TTL)
	}
	return err
}

func (f *fake) Release(ctx context.Context, r driver.Request) error {
	return f.do(ctx, "release", r, func() error { return f.drop(r) })
}

func (f *fake) Withdraw(ctx context.Context, name, owner string) error {
	return f.do(ctx, "withdraw", driver.Request{Name: name, Owner: owner}, func() error {
		f.withdrawn[owner] = true
		if g := f.live(name); g != nil && g.r.Owner == owner {
			delete(f.held, name)
		}
		return nil
	})
}

func (f *fake) drop(r driver.Request) error {
	g, err := f.mine(r)
	if err != nil {
		return err
	}
	if r.Keep > 0 {
		if until := time.Now().Add(r.Keep); until.Before(g.expires) {
			g.expires = until
		}
		return nil
	}
	delete(f.held, r.Name)
	return nil
}

func (f *fake) Inspect(ctx context.Context, name string) (h driver.Holder, err error) {
	err = f.do(ctx, "inspect", driver.Request{Name: name}, func() error {
		h = f.live(name).holder()
		return nil
	})
	return h, err
}

func (f *fake) Proclaim(ctx context.Context, r driver.Request) error {
	return f.do(ctx, "proclaim", r, func() error {
		g, err := f.mine(r)
		if err == nil {
			g.r.Value = r.Value
		}
		return err
	})
}

func (f *fake) Check(ctx context.Context) error {
	return f.do(ctx, "check", driver.Request{}, func() error { return nil })
}

func (f *fake) Properties() driver.Properties { return f.props }

func (f *fake) Close(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

func (f *fake) Wait(ctx context.Context, r driver.Request, most time.Duration) (driver.Grant, error) {
	if err := f.wait(ctx, r, most); err != nil || f.own == 0 {
		return driver.Grant{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	token, err := f.take(r)
	if err != nil {
		return driver.Grant{}, nil
	}
	g := f.held[r.Name]
	g.own, g.expires = true, time.Now().Add(f.own)
	return driver.Grant{Token: token, Sent: time.Now().Add(-f.age), For: f.own}, nil
}

func (f *fake) wait(ctx context.Context, r driver.Request, most time.Duration) error {
	over := time.NewTimer(most)
	defer over.Stop()
	if err := f.do(ctx, "wait", r, func() error { return nil }); err != nil {
		return err
	}
	for {
		f.mu.Lock()
		free, changed := f.live(r.Name) == nil, f.changed
		f.mu.Unlock()
		if free {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-over.C:
			return nil
		case <-changed:
		}
	}
}

func (f *fake) Notify(ctx context.Context, name string, emit func()) error {
	if err := f.do(ctx, "notify", driver.Request{Name: name}, func() error { return nil }); err != nil {
		return err
	}
	for before, first := "", true; ; first = false {
		f.mu.Lock()
		owner, changed := f.live(name).holder().Owner, f.changed
		f.mu.Unlock()
		if first || before != "" && owner != before {
			emit()
		}
		before = owner
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

func (f *fake) Watch(ctx context.Context, emit func(driver.Notice)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case n := <-f.notices:
			emit(n)
		}
	}
}

func (f *fake) Batch(ctx context.Context, ops []driver.Op) []driver.Result {
	results := make([]driver.Result, len(ops))
	err := f.do(ctx, "batch", driver.Request{Name: fmt.Sprint(len(ops))}, func() error {
		for i, op := range ops {
			results[i].Err = f.extend(op.Request)
		}
		return nil
	})
	for i := range results {
		if err != nil {
			results[i].Err = err
		}
	}
	return results
}

func (f *fake) List(ctx context.Context, prefix string, emit func(driver.Holder) bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range f.held {
		if !emit(g.holder()) {
			return nil
		}
	}
	return ctx.Err()
}

func (f *fake) Break(ctx context.Context, name string, token uint64) error {
	return f.do(ctx, "break", driver.Request{Name: name}, func() error {
		g := f.live(name)
		if g == nil || g.r.Token != token {
			return &NotHeldError{Holder: g.holder()}
		}
		delete(f.held, name)
		return nil
	})
}

func (f *fake) times(op string) []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []time.Time
	for _, c := range f.calls {
		if c.op == op {
			out = append(out, c.at)
		}
	}
	return out
}

func (f *fake) count(op string) int { return len(f.times(op)) }

// The hook method replaces f.before and f.after. It may be called while calls are under way.
func (f *fake) hook(before, after func(context.Context, string, driver.Request) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after = before, after
}

func (f *fake) expire(name string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held[name].expires = at
}

func (f *fake) owner(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.live(name).holder().Owner
}

func (f *fake) steal(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.held, name)
	_, _ = f.take(driver.Request{Name: name, Owner: "stranger", Label: "stranger:1", TTL: time.Minute})
}

func (f *fake) forget(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.held, name)
}
