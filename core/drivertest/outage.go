package drivertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

func outageCases() []Case {
	return []Case{
		{
			Name:    "K8 try fails fast when the server is down",
			Explain: `With the server stopped TryAcquire and Check fail within a few seconds and say that it is unavailable; both work again once it is back.`,
			Needs:   []Need{NeedStore},
			Run:     serverDown,
		},
		{
			Name:    "K8 acquire gets the lock when the server is back",
			Explain: `An Acquire that waits when the server stops, or begins while it is down, is granted the lock after its start.`,
			Needs:   []Need{NeedStore},
			Run:     serverBack,
		},
		{
			Name: "K8 calls end with their ctx when the server is frozen",
			Explain: `A server that is stopped (SIGSTOP) keeps its connections and answers nothing: every call still returns soon after its ctx has ended,
and what was not sent is not done later.`,
			Needs: []Need{NeedStore},
			Run:   serverFrozen,
		},
		{
			Name: "K8 a client that the server refuses is told so",
			Explain: `A password that is wrong and a right that is missing are ErrDenied, within the 3 s of a TryAcquire: no other owner holds the
lock, and waiting does not help. So Check fails, and so does an Acquire that would wait, of a client that was never served.`,
			Needs: []Need{NeedDenied},
			Run:   clientDenied,
		},
		{
			Name:    "K8 a call whose ctx has ended returns",
			Explain: `Every method returns soon after its ctx has ended, with an error, and an acquire that never left did nothing.`,
			Run:     deadCalls,
		},
		{
			Name:    "K8 a closed backend says so",
			Explain: `Calls after Close return ErrClosed, and those that sleep in it return. Closing releases nothing.`,
			Run:     closedBackend,
		},
	}
}

func serverDown(t T, h *Harness) {
	c := h.client(t)
	mustRelease(t, c.mustTry(t, "jobs", h.lasting()))
	h.Store.Stop(t)
	start := time.Now()
	_, err := c.try(t, "jobs", h.lasting())
	if !errors.Is(err, core.ErrUnavailable) || errors.Is(err, core.ErrHeld) {
		t.Errorf("TryAcquire with the server down: %v; want ErrUnavailable", err)
	}
	wantWithin(t, start, time.Now(), 3*time.Second, "TryAcquire with the server down")
	if text := err.Error(); strings.Count(text, `"jobs"`) != 1 || strings.Count(text, h.props.Name+": ") != 1 {
		t.Errorf("the error says the lock or the backend more than once: %s", text)
	}
	err = call(t, c.Check)
	if !errors.Is(err, core.ErrUnavailable) {
		t.Errorf("Check with the server down: %v; want ErrUnavailable", err)
	}
	h.Store.Start(t, true)
	eventually(t, 10*time.Second, "Check passes again", func() bool { return call(t, c.Check) == nil })
	eventually(t, 10*time.Second, "TryAcquire works again", func() bool {
		l, err := c.try(t, "jobs", h.lasting())
		return err == nil && l.Valid()
	})
}

func clientDenied(t T, h *Harness) {
	c := h.clientOn(t, h.Denied(t))
	for of, ask := range map[string]func(context.Context) error{
		"TryAcquire": func(context.Context) error { _, err := c.try(t, "jobs", h.lasting()); return err },
		"Acquire":    func(ctx context.Context) error { _, err := c.acquire(ctx, t, "jobs", h.lasting()); return err },
		"Check":      c.Check,
	} {
		start := time.Now()
		if err := call(t, ask); !errors.Is(err, core.ErrDenied) || errors.Is(err, core.ErrHeld) {
			t.Errorf("%s by a client that the server refuses: %v; want ErrDenied", of, err)
		}
		wantWithin(t, start, time.Now(), 3*time.Second, of+" by a client that the server refuses")
	}
}

func serverBack(t T, h *Harness) {
	cs := h.clients(t, 3)
	held := h.attempt(cs[0].b, "jobs", h.brief().TTL).must(t)
	before := cs[1].start(t, "jobs", core.LockOptions{TTL: h.ttl(time.Second)})
	h.Store.Stop(t)
	during := cs[2].launch(t, "other", h.lasting())
	stillWait(t, held.TTL+time.Second, "the server is down", before, during)
	h.Store.Start(t, true)
	before.granted(t, held.TTL+h.late()+10*time.Second)
	during.granted(t, 10*time.Second)
}

func serverFrozen(t T, h *Harness) {
	b := h.Open(t)
	a := h.attempt(b, "jobs", h.lasting().TTL).must(t)
	h.Store.Freeze(t)
	_, unsent := wantReturns(t, h, a, 300*time.Millisecond)
	h.Store.Resume(t)
	eventually(t, 10*time.Second, "Check passes again", func() bool { return call(t, b.Check) == nil })
	if !unsent {
		return
	}
	throughout(t, time.Second, func() string {
		if at := inspect(t, b, "other"); at.Held() {
			return "a TryAcquire that was not sent is granted the lock: " + describe(at)
		}
		return ""
	})
}

// wantReturns calls methods of a backend with a ctx that ends after d. Each must fail soon after d.
func wantReturns(t T, h *Harness, a *attempt, d time.Duration) (other *attempt, unsent bool) {
	other = h.attempt(a.b, "other", a.TTL)
	calls := map[string]func(context.Context) error{
		"TryAcquire": func(ctx context.Context) error {
			_, err := a.b.TryAcquire(ctx, other.Request)
			unsent = errors.Is(err, driver.ErrNotSent)
			return err
		},
		"Withdraw": func(ctx context.Context) error {
			return a.b.Withdraw(ctx, a.Name, h.attempt(a.b, a.Name, a.TTL).Owner)
		},
		"Renew":    func(ctx context.Context) error { return a.b.Renew(ctx, a.Request) },
		"Release":  func(ctx context.Context) error { return a.b.Release(ctx, a.Request) },
		"Inspect":  func(ctx context.Context) error { _, err := a.b.Inspect(ctx, a.Name); return err },
		"Proclaim": func(ctx context.Context) error { return a.b.Proclaim(ctx, a.Request) },
		"Observe": func(ctx context.Context) error {
			return driver.ObserverOf(a.b).Observe(ctx, a.Name, func(driver.Holder) {})
		},
		"Check": a.b.Check,
	}
	if w := driver.WaiterOf(a.b); w != nil {
		calls["Wait"] = func(ctx context.Context) error {
			_, err := w.Wait(ctx, h.attempt(a.b, a.Name, a.TTL).Request, time.Minute)
			return err
		}
	}
	var wg sync.WaitGroup
	for of, f := range calls {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			start := time.Now()
			err := f(ctx)
			wantWithin(t, start, time.Now(), d+time.Second, fmt.Sprintf("%s with a ctx of %v", of, d))
			// Renew and Proclaim may return ErrNotHeld, because a Release runs at the same time.
			gone := errors.Is(err, driver.ErrNotHeld) && of == "Release"
			if err == nil || errors.Is(err, driver.ErrHeld) || gone {
				t.Errorf("%s with a ctx of %v and no answer: %v", of, d, err)
			}
		})
	}
	wg.Wait()
	return other, unsent
}

func deadCalls(t T, h *Harness) {
	b := h.Open(t)
	a := h.attempt(b, "jobs", h.lasting().TTL).must(t)
	other, unsent := wantReturns(t, h, a, -1)
	a.wantHeldBy(t, "after calls that never left")
	if unsent {
		wantFree(t, b, "other", "after a TryAcquire that was not sent")
	}
	other.withdraw(t)
	wantFree(t, b, "other", "after the withdrawal")
}

func closedBackend(t T, h *Harness) {
	b := h.Open(t)
	a := h.attempt(b, "jobs", h.lasting().TTL).must(t)
	observed := make(chan error, 1)
	started := make(chan struct{})
	start := sync.OnceFunc(func() { close(started) })
	go func() {
		observed <- driver.ObserverOf(b).Observe(t.Context(), "jobs", func(driver.Holder) { start() })
	}()
	if _, ok := receive(t, started, 5*time.Second); !ok {
		t.Fatalf("Observe does not say who holds the lock")
	}
	wantNil(t, call(t, b.Close), "Close")
	if err, ok := receive(t, observed, 3*time.Second); !ok {
		t.Errorf("Observe goes on after Close")
	} else if err == nil {
		t.Errorf("Observe ended with Close, and without an error")
	}
	for of, err := range map[string]error{
		"TryAcquire": a.try(t), "Renew": a.renew(t), "Release": a.release(t), "Check": call(t, b.Check),
		"Inspect": call(t, func(ctx context.Context) error { _, err := b.Inspect(ctx, "jobs"); return err }),
	} {
		if !errors.Is(err, driver.ErrClosed) {
			t.Errorf("%s after Close: %v; want ErrClosed", of, err)
		}
	}
	if err := call(t, b.Close); err != nil && !errors.Is(err, driver.ErrClosed) {
		t.Errorf("closing twice: %v", err)
	}
}
