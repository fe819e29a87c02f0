package drivertest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
)

const whyTokensRise = `The token of a grant is higher than every earlier one of that name, so that a resource that remembers the highest
can refuse the writes of holders that were paused. One that repeats or goes back lets a stale write through.`

func tokenCases() []Case {
	rising := func(name string, run func(T, *Harness)) Case {
		return Case{Name: "L6 tokens rise over " + name, Explain: whyTokensRise, Excuse: noFencing, Run: run}
	}
	return []Case{
		{
			Name: "L6 tokens are what the properties claim",
			Explain: `A backend that mints tokens never grants token zero, and one that claims none never fakes one. One that claims
that they are times mints times. All are below 2^53: core puts the number of the hand-over inside a host below them, and
the sum has to fit a column of 64 bits.`,
			Run: tokensAsClaimed,
		},
		rising("release", risingOverRelease),
		rising("expiry", risingOverExpiry),
		rising("withdrawal", risingOverWithdrawal),
		withExcuse(rising("break", risingOverBreak), needsCapability(driver.CapAdmin)),
		rising("hand-overs inside a host", risingOverHandovers),
		{
			Name: "L6 a token is minted with its grant",
			Explain: `The token is minted in the same atomic step as the grant. Minted apart, two contenders come by tokens in one order
and by the lock in the other, and the later holder is refused by the resource.`,
			Excuse: noFencing,
			Run:    mintedWithGrant,
		},
		withNeeds(rising("a crash of the store that keeps its data", func(t T, h *Harness) { risingOverRestart(t, h, true) }), NeedStore),
		withNeeds(rising("a restart of the store without its data", func(t T, h *Harness) { risingOverRestart(t, h, false) }), NeedStore),
	}
}

func noFencing(p driver.Properties) string {
	if p.Fencing == driver.FencingNone {
		return "fencing none"
	}
	return ""
}

// withExcuse adds an excuse to those of c.
func withExcuse(c Case, excuse func(driver.Properties) string) Case {
	first := c.Excuse
	c.Excuse = func(p driver.Properties) string {
		if first != nil {
			if reason := first(p); reason != "" {
				return reason
			}
		}
		return excuse(p)
	}
	return c
}

func withNeeds(c Case, needs ...Need) Case {
	c.Needs = needs
	return c
}

func tokensAsClaimed(t T, h *Harness) {
	a := h.attempt(h.Open(t), "jobs", h.lasting().TTL).must(t)
	if none := h.props.Fencing == driver.FencingNone; none != (a.Token == 0) {
		t.Errorf("fencing is %q and the token %d", h.props.Fencing, a.Token)
	}
	if a.Token >= 1<<53 {
		t.Errorf("the token is %d, at or above 2^53", a.Token)
	}
	// A day is more than any clock is wrong by, and less than any number that is
	// no time.
	if off := time.Since(time.UnixMicro(int64(a.Token))).Abs(); h.props.TimedTokens && off > 24*time.Hour {
		t.Errorf("tokens claim to be times, and %d is %v off", a.Token, off)
	}
	a.wantHeldBy(t, "after the grant")
}

// rises grants name again and fails unless its token is above last.
func rises(t T, h *Harness, b driver.Backend, last uint64, after string) *attempt {
	t.Helper()
	a := h.attempt(b, "jobs", h.lasting().TTL).must(t)
	if a.Token <= last {
		t.Errorf("after %s token %d follows token %d", after, a.Token, last)
	}
	return a
}

func risingOverRelease(t T, h *Harness) {
	bs := h.backends(t, 2)
	var last uint64
	for i := range 40 {
		a := rises(t, h, bs[i%2], last, "release")
		last = a.Token
		a.mustRelease(t)
	}
}

func risingOverExpiry(t T, h *Harness) {
	bs := h.backends(t, 2)
	last := h.attempt(bs[0], "jobs", h.ttl(50*time.Millisecond)).must(t)
	eventually(t, last.TTL+h.late()+time.Second, "the lease expires", func() bool { return !inspect(t, bs[1], "jobs").Held() })
	rises(t, h, bs[1], last.Token, "expiry")
}

func risingOverWithdrawal(t T, h *Harness) {
	bs := h.backends(t, 2)
	var last uint64
	for i := range 10 {
		a := rises(t, h, bs[i%2], last, "withdrawal")
		last = a.Token
		a.withdraw(t)
	}
}

func risingOverBreak(t T, h *Harness) {
	bs := h.backends(t, 2)
	a := h.attempt(bs[0], "jobs", h.lasting().TTL).must(t)
	err := call(t, func(ctx context.Context) error { return driver.AdminOf(bs[1]).Break(ctx, "jobs", a.Token) })
	if err != nil {
		t.Fatalf("Break of token %d: %v", a.Token, err)
	}
	rises(t, h, bs[1], a.Token, "break")
}

// risingOverHandovers asks core: the hand-overs are its own.
func risingOverHandovers(t T, h *Harness) {
	cs := h.clients(t, 2)
	last := cs[0].mustTry(t, "jobs", h.lasting())
	for i := range 24 {
		c := cs[0]
		if i%6 == 5 {
			c = cs[1]
		}
		next := c.start(t, "jobs", h.lasting())
		if err := last.Release(t.Context()); err != nil {
			t.Fatalf("Release of token %d: %v", last.Token(), err)
		}
		l := next.granted(t, 10*time.Second)
		if l.Token() <= last.Token() {
			t.Errorf("token %d follows token %d", l.Token(), last.Token())
		}
		if at, err := cs[i%2].Inspect(t.Context(), "jobs"); err != nil || core.GrantNumber(at.Token) != core.GrantNumber(l.Token()) {
			t.Errorf("Inspect shows token %d (%v) for token %d", at.Token, err, l.Token())
		}
		last = l
	}
}

func mintedWithGrant(t T, h *Harness) {
	bs := h.backends(t, 2)
	const grants = 60
	var (
		mu     sync.Mutex // guards tokens, not the lock: the lock is what is tested
		tokens []uint64
		wg     sync.WaitGroup
	)
	full := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(tokens) >= grants
	}
	contend := func(b driver.Backend) {
		for !full() && t.Context().Err() == nil {
			a := h.attempt(b, "jobs", h.lasting().TTL)
			if err := a.try(t); err != nil {
				if !errors.Is(err, driver.ErrHeld) {
					t.Errorf("TryAcquire under contention: %v", err)
					return
				}
				pause(t, breath)
				continue
			}
			mu.Lock()
			tokens = append(tokens, a.Token) // in the order of the grants: a holds the lock
			mu.Unlock()
			if err := a.release(t); err != nil {
				t.Errorf("Release of token %d under contention: %v", a.Token, err)
				return
			}
		}
	}
	for i := range 6 {
		wg.Go(func() { contend(bs[i%2]) })
	}
	wg.Wait()
	for i := 1; i < len(tokens); i++ {
		if tokens[i] <= tokens[i-1] {
			t.Errorf("grant %d has token %d after token %d", i, tokens[i], tokens[i-1])
		}
	}
}

func risingOverRestart(t T, h *Harness, keepData bool) {
	b := h.Open(t)
	a := h.attempt(b, "jobs", h.ttl(100*time.Millisecond)).must(t)
	h.Store.Stop(t)
	h.Store.Start(t, keepData)
	last, next := a.Token, h.attempt(b, "jobs", h.lasting().TTL)
	eventually(t, a.TTL+h.late()+20*time.Second, "the lock is granted after the restart", func() bool {
		next = h.attempt(b, "jobs", h.lasting().TTL)
		return next.try(t) == nil
	})
	if next.Token <= last {
		t.Errorf("after the restart token %d follows token %d", next.Token, last)
	}
}
