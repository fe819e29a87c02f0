package drivertest

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core"
)

func ttlCases() []Case {
	return []Case{
		{
			Name: "K7 a TTL outside the bounds is refused before anything is sent",
			Explain: `A TTL below the backend's minimum, above its maximum or between its steps is a clear error that names all three, and
the backend never sees it.`,
			Run: badTTLs,
		},
		{
			Name: "K7 no TTL is rounded",
			Explain: `The store keeps the TTL that was asked for, to the step that the properties state: one that is silently rounded up
blocks others for longer than agreed, one that is rounded down loses the lease.`,
			Run: keptTTLs,
		},
	}
}

func badTTLs(t T, h *Harness) {
	c, g := h.injected(t, h.open(t))
	low, step, high := h.props.TTLMin, h.props.TTLStep, h.props.TTLMax
	if low <= 0 || step <= 0 || high < low {
		t.Fatalf("the properties state a TTL from %v to %v in steps of %v", low, high, step)
	}
	bad := []time.Duration{-1, 1, low - step, high + step, 10 * 365 * 24 * time.Hour}
	if step > 1 {
		bad = append(bad, low+step/2, low+1)
	}
	for _, ttl := range bad {
		if ttl == 0 {
			continue // the default
		}
		_, lockErr := c.Lock("jobs", &core.LockOptions{TTL: ttl})
		_, electorErr := c.Elector("jobs", &core.ElectorOptions{TTL: ttl})
		for of, err := range map[string]error{"Lock": lockErr, "Elector": electorErr} {
			err = c.hooks.refuse(err)
			if !errors.Is(err, core.ErrInvalid) {
				t.Errorf("%s with TTL %v: %v; want ErrInvalid", of, ttl, err)
				continue
			}
			for _, bound := range []time.Duration{low, step, high} {
				if !strings.Contains(err.Error(), bound.String()) {
					t.Errorf("%s with TTL %v: %v; it does not name the bound %v", of, ttl, err, bound)
				}
			}
		}
	}
	if n := g.total(); n != 0 {
		t.Errorf("%d requests with bad TTLs were sent", n)
	}
}

func keptTTLs(t T, h *Harness) {
	b := h.Open(t)
	low, step := h.props.TTLMin, h.props.TTLStep
	ttls := []time.Duration{h.ttl(30*time.Second) + step, h.ttl(4321*time.Millisecond) + step, h.ttl(time.Minute + 7*time.Millisecond), h.props.TTLMax}
	slices.Sort(ttls)
	for _, ttl := range ttls {
		a := h.attempt(b, "jobs", ttl)
		sent := time.Now()
		a.must(t)
		at := inspect(t, b, "jobs")
		if lost := time.Since(sent); at.TTL > ttl || at.TTL < ttl-lost-step {
			t.Errorf("a TTL of %v was asked for %v ago, and the store says another %v", ttl, lost, at.TTL)
		}
		a.TTL = h.ttl(ttl/2 + step)
		sent = time.Now()
		a.mustRenew(t)
		at = inspect(t, b, "jobs")
		if lost := time.Since(sent); at.TTL > a.TTL || at.TTL < a.TTL-lost-step {
			t.Errorf("a renewal for %v was asked for %v ago, and the store says another %v", a.TTL, lost, at.TTL)
		}
		a.mustRelease(t)
	}
	shortest := h.attempt(b, "shortest", low)
	sent := time.Now()
	shortest.must(t)
	replied := time.Now()
	wantExpiry(t, h.attempt(b, "shortest", h.lasting().TTL), sent.Add(low), replied.Add(low+h.late()))
}
