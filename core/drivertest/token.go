package drivertest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

const whyTokensRise = `The token of a grant is higher than every earlier one of that name, so that a resource that remembers the highest
can refuse the writes of holders that were paused. One that repeats or goes back lets a stale write through.`

func tokenCases() []Case {
	over := func(name string, run func(T, *Harness), excuse func(driver.Properties) string, needs ...Need) Case {
		return Case{Name: "L6 tokens rise over " + name, Explain: whyTokensRise, Needs: needs, Excuse: excuse, Run: run}
	}
	return []Case{
		{
			Name: "L6 tokens are what the properties claim",
			Explain: `No grant has token zero. A backend that claims that they are times mints times. All are below 2^53: core puts the number of the hand-over inside a host below them, and
the sum has to fit a column of 64 bits.`,
			Run: tokensAsClaimed,
		},
		over("release", rising(40, lastingTTL, func(t T, _ *Harness, a *attempt, _ driver.Backend) { a.mustRelease(t) }), nil),
		over("expiry", rising(2, 50*time.Millisecond, expires), nil),
		over("withdrawal", rising(10, lastingTTL, func(t T, _ *Harness, a *attempt, _ driver.Backend) { a.withdraw(t) }), nil),
		over("break", rising(10, lastingTTL, isBroken), needsCapability(driver.CapAdmin)),
		{
			Name: "L6 a token is minted with its grant",
			Explain: `The token is minted in the same atomic step as the grant. Minted apart, two contenders come by tokens in one order
and by the lock in the other, and the later holder is refused by the resource.`,
			Run: mintedWithGrant,
		},
		over("a crash of the store that keeps its data", risingOverRestart(true), nil, NeedStore),
		over("a restart of the store without its data", risingOverRestart(false), followsData, NeedStore),
	}
}

// followsData is an Excuse for backends whose tokens may fall when the store loses its data.
func followsData(p driver.Properties) string {
	durable := p.Fencing == driver.FencingStrict || p.TimedTokens
	return when(!durable, string(p.Fencing)+" tokens that are no times are as durable as the store's data")
}

func tokensAsClaimed(t T, h *Harness) {
	a := h.attempt(h.open(t), "jobs", h.lasting().TTL).must(t)
	if a.Token == 0 || a.Token >= 1<<53 {
		t.Errorf("the token is %d: not above 0 and below 2^53", a.Token)
	}
	// If tokens are times, each must be within a day of now, because no clock is wrong by more.
	if off := time.Since(time.UnixMicro(int64(a.Token))).Abs(); h.props.TimedTokens && off > 24*time.Hour {
		t.Errorf("tokens claim to be times, and %d is %v off", a.Token, off)
	}
	a.wantHeldBy(t, "after the grant")
}

func (h *Harness) wantHigher(t T, token, before uint64) {
	if token <= before {
		t.Errorf("token %d follows token %d", token, before)
	}
}

// The function rising returns a case in which two hosts are granted the lock in turn, and every
// token must be higher than the previous token. The parameter times is the number of grants. After
// each grant, the case calls the function end with the backend that acquires the lock next.
func rising(times int, ttl time.Duration, end func(t T, h *Harness, a *attempt, next driver.Backend)) func(T, *Harness) {
	return func(t T, h *Harness) {
		bs := h.backends(t, 2)
		var last uint64
		for i := range times {
			a := h.attempt(bs[i%2], "jobs", h.ttl(ttl)).must(t)
			h.wantHigher(t, a.Token, last)
			last = a.Token
			end(t, h, a, bs[(i+1)%2])
		}
	}
}

func expires(t T, h *Harness, a *attempt, next driver.Backend) {
	eventually(t, a.TTL+h.late()+time.Second, "the lease expires", func() bool { return !inspect(t, next, a.Name).Held() })
}

func isBroken(t T, _ *Harness, a *attempt, next driver.Backend) {
	err := call(t, func(ctx context.Context) error { return driver.AdminOf(next).Break(ctx, a.Name, a.Token) })
	wantNil(t, err, "Break")
}

func mintedWithGrant(t T, h *Harness) {
	bs := h.backends(t, 2)
	const grants = 60
	var (
		granted atomic.Int32
		last    atomic.Uint64
		wg      sync.WaitGroup
	)
	contend := func(b driver.Backend) {
		for granted.Load() < grants && t.Context().Err() == nil {
			a := h.attempt(b, "jobs", h.lasting().TTL)
			err := a.try(t)
			if errors.Is(err, driver.ErrHeld) {
				pause(t, breath)
				continue
			}
			wantNil(t, err, "TryAcquire under contention")
			granted.Add(1)
			h.wantHigher(t, a.Token, last.Swap(a.Token)) // while the attempt a holds the lock
			a.mustRelease(t)
		}
	}
	for i := range 6 {
		wg.Go(func() { contend(bs[i%2]) })
	}
	wg.Wait()
}

func risingOverRestart(keepData bool) func(T, *Harness) {
	return func(t T, h *Harness) {
		b := h.Open(t)
		a := h.attempt(b, "jobs", h.ttl(100*time.Millisecond)).must(t)
		h.Store.Stop(t)
		h.Store.Start(t, keepData)
		var next *attempt
		eventually(t, a.TTL+h.late()+20*time.Second, "the lock is granted after the restart", func() bool {
			next = h.attempt(b, "jobs", h.lasting().TTL)
			return next.try(t) == nil
		})
		h.wantHigher(t, next.Token, a.Token)
	}
}
