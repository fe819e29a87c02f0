package drivertest

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// attempt is one owner that calls a driver.Backend directly, so that core does not renew, retry or
// clean up for that owner.
type attempt struct {
	b driver.Backend
	driver.Request
}

// The method attempt returns a new attempt. It sends no request.
func (h *Harness) attempt(b driver.Backend, name string, ttl time.Duration) *attempt {
	return &attempt{b: b, Request: driver.Request{Name: name, Owner: rand.Text(), Label: "conformance attempt", TTL: ttl}}
}

// by returns an attempt of the same owner through the backend b, as another process would make it.
func (a *attempt) by(b driver.Backend) *attempt { return &attempt{b, a.Request} }

// backends opens n backends on the harness's store. If the store is in a plugin (scope "host"),
// backends opens one backend and returns it n times, because each plugin has a separate store.
func (h *Harness) backends(t T, n int) []driver.Backend {
	all := []driver.Backend{h.open(t)}
	for len(all) < n {
		b := all[0]
		if h.props.Scope != driver.ScopeHost || h.InProcess {
			b = h.open(t)
		}
		all = append(all, b)
	}
	return all
}

// open opens a backend and connects it, so that no case measures the time to connect.
func (h *Harness) open(t T) driver.Backend {
	b := h.Open(t)
	_ = call(t, b.Check) // the error is not needed: if Check fails, the case will fail too
	return b
}

// The function call runs f, which sends one request, for at most 10 s.
func call(t T, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return f(ctx)
}

// ask calls f, which sends the attempt's request, for at most 10 s.
func (a *attempt) ask(t T, op string, f func(context.Context, driver.Request) error) error {
	err := call(t, func(ctx context.Context) error { return f(ctx, a.Request) })
	if err == nil {
		step(t, "%s of %q by owner %s, token %d", op, a.Name, a.Owner, a.Token)
	}
	return err
}

func (a *attempt) try(t T) error {
	return a.ask(t, "TryAcquire", func(ctx context.Context, r driver.Request) error {
		token, err := a.b.TryAcquire(ctx, r)
		if err == nil {
			a.Token = token
		}
		return err
	})
}

func (a *attempt) must(t T) *attempt {
	if err := a.try(t); err != nil {
		t.Fatalf("owner %s: TryAcquire of the free lock %q: %v", a.Owner, a.Name, err)
	}
	return a
}

func (a *attempt) renew(t T) error    { return a.ask(t, "Renew", a.b.Renew) }
func (a *attempt) release(t T) error  { return a.ask(t, "Release", a.b.Release) }
func (a *attempt) proclaim(t T) error { return a.ask(t, "Proclaim", a.b.Proclaim) }

func (a *attempt) mustRenew(t T)   { a.worked(t, "Renew", a.renew(t)) }
func (a *attempt) mustRelease(t T) { a.worked(t, "Release", a.release(t)) }

// worked fails the case if err is not nil, or repeats it if the lease is gone and this process
// stalled.
func (a *attempt) worked(t T, op string, err error) {
	const text = "owner %s: %s of %q with token %d and TTL %v: %v"
	switch {
	case errors.Is(err, driver.ErrNotHeld):
		mistimed(t, a.TTL, text, a.Owner, op, a.Name, a.Token, a.TTL, err)
	case err != nil:
		t.Fatalf(text, a.Owner, op, a.Name, a.Token, a.TTL, err)
	}
}

func (a *attempt) withdraw(t T) {
	err := a.ask(t, "Withdraw", func(ctx context.Context, r driver.Request) error { return a.b.Withdraw(ctx, r.Name, r.Owner) })
	if err != nil {
		t.Fatalf("withdrawing owner %s from %q: %v", a.Owner, a.Name, err)
	}
}

func (a *attempt) wait(t T, limit time.Duration) (g driver.Grant, err error) {
	err = call(t, func(ctx context.Context) (err error) {
		g, err = driver.WaiterOf(a.b).Wait(ctx, a.Request, limit)
		return err
	})
	return g, err
}

// enqueue puts the attempt into the queue for a held lock. Its call of Wait has then ended.
func (a *attempt) enqueue(t T) {
	wantHeld(t, a.try(t), "TryAcquire of a held lock")
	_, err := a.wait(t, 50*time.Millisecond)
	wantNil(t, err, "Wait")
}

// waitAcquire calls TryAcquire after Wait, unless Wait returned a grant with more than half of its
// time left. For such a grant, the result own is the earliest time at which the grant ends.
// Otherwise own is zero.
func (a *attempt) waitAcquire(t T, limit time.Duration) (own time.Time, err error) {
	g, err := a.wait(t, limit)
	age := time.Since(g.Sent)
	switch {
	case err != nil:
		return own, err
	case g.Token == 0 || age >= g.For/2:
		return own, a.try(t)
	case age < 0:
		t.Errorf("the sign of life before a grant will be sent in %v, says the Wait", -age)
	}
	a.Token = g.Token
	return g.Sent.Add(g.For), nil
}

// mustWaitAcquire calls waitAcquire until the attempt has the lock. The holder must release it.
func (a *attempt) mustWaitAcquire(t T) (own time.Time) {
	const limit = 9 * time.Second // less than the 10 s that call allows
	own, err := a.waitAcquire(t, limit)
	for errors.Is(err, driver.ErrHeld) && t.Context().Err() == nil { // woken without a grant
		own, err = a.waitAcquire(t, limit)
	}
	wantNil(t, err, "waiting for a lock that was released")
	return own
}

func inspect(t T, b driver.Backend, name string) driver.Holder {
	var h driver.Holder
	err := call(t, func(ctx context.Context) (err error) {
		h, err = b.Inspect(ctx, name)
		return err
	})
	wantNil(t, err, "Inspect")
	return h
}

func (a *attempt) wantHeldBy(t T, when string) {
	if h := inspect(t, a.b, a.Name); h.Owner != a.Owner || h.Token != a.Token {
		t.Errorf("%s owner %s with token %d should hold %q: %s", when, a.Owner, a.Token, a.Name, describe(h))
	}
}

func wantFree(t T, b driver.Backend, name, when string) {
	if h := inspect(t, b, name); h.Held() {
		t.Errorf("%s %q should be free: %s", when, name, describe(h))
	}
}

func wantNil(t T, err error, what string) {
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func wantHeld(t T, err error, when string) driver.Holder {
	held, ok := errors.AsType[*driver.HeldError](err)
	if !ok || !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("%s: want a HeldError, got %v", when, err)
	}
	return held.Holder
}

func wantNotHeld(t T, err error, when string) driver.Holder {
	gone, ok := errors.AsType[*driver.NotHeldError](err)
	if !ok || !errors.Is(err, driver.ErrNotHeld) {
		t.Fatalf("%s: want a NotHeldError, got %v", when, err)
	}
	return gone.Holder
}
