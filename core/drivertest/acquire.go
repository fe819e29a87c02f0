package drivertest

import (
	"context"
	"errors"
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
	stillWait(t, 300*time.Millisecond, "another holds it", a)
	mustRelease(t, l)
	released := time.Now()
	next := a.granted(t, 5*time.Second)
	wantWithin(t, released, a.at, 1100*time.Millisecond, "the grant after the release") // the head asks once a second at least
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
		wantWithin(t, start, time.Now(), 1500*time.Millisecond, "an Acquire whose ctx lasted 200ms")
		cancel()
		if err == nil {
			t.Fatalf("Acquire got token %d while token %d is held", lease.Token(), l.Token())
		}
		if !errors.Is(err, want) {
			t.Errorf("want an error for %v, got %v", want, err)
		}
	}
	mustRelease(t, l)
	h.attempt(cs[0].b, "jobs", h.lasting().TTL).must(t)
}
