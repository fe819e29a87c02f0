package drivertest

import (
	"context"
	"time"
)

func refusalCases() []Case {
	return []Case{
		{
			Name: "K2 try decides once and says who holds",
			Explain: `TryAcquire of a held lock is refused at once, with a HeldError that names the holder, as it labelled itself, and what
is left of its lease.`,
			Run: saysWhoHolds,
		},
		{
			Name: "K2 a refusal carries the remaining TTL",
			Explain: `A refusal says how long the lease has yet to live. The head of the queue asks again just after it: too short, and it
asks for nothing; too long or none, and a crashed holder's lock stays unused.`,
			Run: carriesTTL,
		},
		{
			Name: "K2 a refused try leaves nothing behind",
			Explain: `A TryAcquire that was refused has no place in the queue and no claim: after the release the lock is free for
whoever asks first.`,
			Run: leavesNothing,
		},
		{
			Name: "K2 inspect says what the store knows",
			Explain: `Inspect shows name, owner, label, value, token and remaining TTL of the holder, and the zero Holder when there is
none.`,
			Run: inspectHolder,
		},
	}
}

func saysWhoHolds(t T, h *Harness) {
	cs := h.clients(t, 2)
	l := cs[0].mustTry(t, "jobs", h.lasting())
	start := time.Now()
	second, err := cs[1].try(t, "jobs", h.lasting())
	wantWithin(t, start, time.Now(), 2*time.Second, "TryAcquire of a held lock")
	if err == nil {
		t.Fatalf("token %d was granted while token %d is held", second.Token(), l.Token())
	}
	at := wantHeld(t, err, "TryAcquire of a held lock")
	if at.Owner != l.Owner() || at.Label != "conformance case" || at.TTL <= 0 || at.TTL > h.lasting().TTL {
		t.Errorf("the refusal says: %s; want owner %q, label %q, at most %v", describe(at), l.Owner(), "conformance case", h.lasting().TTL)
	}
}

func carriesTTL(t T, h *Harness) {
	bs := h.backends(t, 2)
	a := h.attempt(bs[0], "jobs", h.ttl(time.Second))
	sent := time.Now()
	a.must(t)
	replied := time.Now()
	other := h.attempt(bs[1], "jobs", h.lasting().TTL)
	for time.Since(replied) < a.TTL*3/4 {
		asked := time.Now()
		err := other.try(t)
		answered := time.Now()
		if err == nil && answered.Sub(sent) >= a.TTL {
			mistimed(t, a.TTL, "no refusal came while the lease lived")
		}
		at := wantHeld(t, err, "while the lease lives")
		most, least := a.TTL-asked.Sub(replied)+2*time.Millisecond, a.TTL-answered.Sub(sent)
		if at.TTL > most || at.TTL < least-h.props.TTLStep {
			t.Fatalf("the refusal says another %v; it is between %v and %v", at.TTL, least, most)
		}
		pause(t, a.TTL/8)
	}
}

func leavesNothing(t T, h *Harness) {
	bs := h.backends(t, 3)
	a := h.attempt(bs[0], "jobs", h.lasting().TTL).must(t)
	for range 5 {
		wantHeld(t, h.attempt(bs[1], "jobs", h.lasting().TTL).try(t), "TryAcquire of a held lock")
	}
	if at := inspect(t, bs[0], "jobs"); at.Waiters > 0 {
		t.Errorf("after refused tries: %s", describe(at))
	}
	a.mustRelease(t)
	next := h.attempt(bs[2], "jobs", h.lasting().TTL).must(t)
	next.mustRelease(t)
	h.wantNothingLeft(t, "refused tries")
}

// wantNothingLeft fails if the store keeps anything of what went on, as far as
// the harness can tell.
func (h *Harness) wantNothingLeft(t T, what string) {
	t.Helper()
	if h.Leftovers == nil {
		return
	}
	if left := h.Leftovers(t); len(left) > 0 {
		t.Errorf("%s have left %d entries: %.10q", what, len(left), left)
	}
}

func inspectHolder(t T, h *Harness) {
	bs := h.backends(t, 2)
	wantFree(t, bs[0], "jobs", "before the first grant")
	a := h.attempt(bs[0], "jobs", h.lasting().TTL)
	a.Label, a.Value = "日本 host\x00:1", []byte("val\x00ue\xff")
	a.must(t)
	at := inspect(t, bs[1], "jobs")
	if at.Name != a.Name || at.Owner != a.Owner || at.Label != a.Label || string(at.Value) != string(a.Value) || at.Token != a.Token {
		t.Errorf("Inspect says %q, %s, value %q; the lease is %q, owner %q, label %q, value %q, token %d",
			at.Name, describe(at), at.Value, a.Name, a.Owner, a.Label, a.Value, a.Token)
	}
	if at.TTL <= a.TTL-5*time.Second || at.TTL > a.TTL || at.TTL%time.Millisecond != 0 {
		t.Errorf("Inspect says another %v: want whole milliseconds, a little below %v", at.TTL, a.TTL)
	}
	if at.Waiters < -1 || at.Waiters > 0 {
		t.Errorf("nobody waits, and Inspect says %d", at.Waiters)
	}
	a.mustRelease(t)
	err := call(t, func(ctx context.Context) error {
		free, err := bs[1].Inspect(ctx, "jobs")
		if err == nil && (free.Held() || free.Name != "" || free.Value != nil) {
			t.Errorf("a free lock is the zero Holder, not %+v", free)
		}
		return err
	})
	if err != nil {
		t.Errorf("Inspect of a free lock: %v", err)
	}
}
