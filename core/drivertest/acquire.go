package drivertest

import (
	"context"
	"errors"
	"fmt"
	"time"
)

func acquireCases() []Case {
	return []Case{
		{
			Name: "K1 acquire waits for the release",
			Explain: `Acquire goes on until the lock is granted: not before its holder, in another host, has released it, and soon
after.`,
			Run: waitsForRelease,
		},
		{
			Name: "K1 acquire ends with its ctx",
			Explain: `Acquire ends when its ctx does, with an error that satisfies errors.Is for ctx.Err(). It then owns nothing and stands
in nobody's way.`,
			Run: endsWithCtx,
		},
	}
}

func waitsForRelease(t T, h *Harness) {
	cs := h.clients(t, 2)
	l := cs[0].mustTry(t, "jobs", h.lasting())
	a := cs[1].start(t, "jobs", h.lasting())
	throughout(t, 300*time.Millisecond, func() string {
		if a.ended() {
			return fmt.Sprintf("Acquire has ended with %v while token %d is held", a.err, l.Token())
		}
		return ""
	})
	if err := l.Release(t.Context()); err != nil {
		t.Fatalf("Release: %v", err)
	}
	released := time.Now()
	next := a.granted(t, 5*time.Second)
	if took := ran(t, released, a.at); took > 1100*time.Millisecond { // the head asks once a second at least
		t.Errorf("the waiter got the lock %v after the release", took)
	}
	if !next.Valid() {
		t.Errorf("the waiter's lease is not valid: %v", next.Err())
	}
}

func endsWithCtx(t T, h *Harness) {
	cs := h.clients(t, 2)
	l := cs[0].mustTry(t, "jobs", h.lasting())
	for _, want := range []error{context.DeadlineExceeded, context.Canceled} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if want == context.Canceled {
			ctx, cancel = context.WithCancel(t.Context())
			timer := time.AfterFunc(200*time.Millisecond, cancel)
			defer timer.Stop()
		}
		start := time.Now()
		lease, err := cs[1].acquire(ctx, t, "jobs", h.lasting())
		took := ranSince(t, start)
		cancel()
		if err == nil {
			t.Fatalf("Acquire got token %d while token %d is held", lease.Token(), l.Token())
		}
		if !errors.Is(err, want) {
			t.Errorf("want an error for %v, got %v", want, err)
		}
		if took > 1500*time.Millisecond {
			t.Errorf("Acquire ended %v after its start; its ctx lasted 200ms", took)
		}
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatalf("Release: %v", err)
	}
	h.attempt(cs[0].b, "jobs", h.lasting().TTL).must(t)
}
