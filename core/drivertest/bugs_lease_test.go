package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// asHolder simulates a bug that treats r as a request of the holder. The bug ignores r.Owner if the
// parameter owner is true, and r.Token if token is true.
func asHolder(ctx context.Context, c *calls, r driver.Request, owner, token bool) driver.Request {
	h, err := c.inspect(ctx, r.Name)
	if err != nil || !h.Held() {
		return r
	}
	if owner && token || owner && r.Token == h.Token || token && r.Owner == h.Owner {
		r.Owner, r.Token = h.Owner, h.Token
	}
	return r
}

type request = func(context.Context, driver.Request) error

// forgets returns f with a bug: the backend does not compare the request's owner if the parameter
// owner is true, and does not compare its token if the parameter token is true.
func forgets(c *calls, f request, owner, token bool) request {
	inner := *c
	return func(ctx context.Context, r driver.Request) error {
		return f(ctx, asHolder(ctx, &inner, r, owner, token))
	}
}

// looksFirst returns f with a bug: the backend compares owner and token a moment before it acts.
func looksFirst(c *calls, f request) request {
	act, inner := forgets(c, f, true, true), *c
	return func(ctx context.Context, r driver.Request) error {
		if h, err := inner.inspect(ctx, r.Name); err != nil || h.Owner != r.Owner || h.Token != r.Token {
			return &driver.NotHeldError{Holder: h}
		}
		time.Sleep(time.Millisecond)
		return act(ctx, r)
	}
}

const atItsEnd = "L7 a request at the end of a lease leaves the next lease alone"

func leaseBugs() []bug {
	return []bug{
		{
			name:   "release looks first",
			plant:  each(func(c *calls) { c.release = looksFirst(c, c.release) }),
			caught: []string{atItsEnd},
		},
		{
			name:   "renew looks first",
			plant:  each(func(c *calls) { c.renew = looksFirst(c, c.renew) }),
			caught: []string{atItsEnd},
		},
		{
			name:   "proclaim looks first",
			plant:  each(func(c *calls) { c.proclaim = looksFirst(c, c.proclaim) }),
			caught: []string{atItsEnd},
		},
		{
			name:  "release by key only",
			plant: each(func(c *calls) { c.release = forgets(c, c.release, true, true) }),
			caught: []string{
				"L7 release compares the owner", "L7 release compares the token", "L7 the release of an expired holder frees no other lease",
				"L7 release is idempotent",
			},
		},
		{
			name:   "release ignores the token",
			plant:  each(func(c *calls) { c.release = forgets(c, c.release, false, true) }),
			caught: []string{"L7 release compares the token"},
		},
		{
			name:  "release does nothing",
			plant: each(func(c *calls) { c.release = succeed }),
			caught: []string{

				"K1 acquire waits for the release", "E1 leadership passes to the next candidate",
				"L7 release is idempotent",
			},
		},
		{
			name: "Keep is ignored",
			plant: each(func(c *calls) {
				inner := c.release
				c.release = func(ctx context.Context, r driver.Request) error { r.Keep = 0; return inner(ctx, r) }
			}),
			caught: []string{
				"L7 release with Keep shortens the lease and never lengthens it", "L7 a killed host's AtLeast is kept",
			},
		},
		{
			name: "Keep lengthens the lease",
			plant: each(func(c *calls) {
				inner := *c
				c.release = func(ctx context.Context, r driver.Request) error {
					if r.Keep == 0 {
						return inner.release(ctx, r)
					}
					r.TTL = r.Keep
					return inner.renew(ctx, r)
				}
			}),
			caught: []string{"L7 release with Keep shortens the lease and never lengthens it"},
		},
		{
			name:   "renew ignores the owner",
			plant:  each(func(c *calls) { c.renew = forgets(c, c.renew, true, false) }),
			caught: []string{"L7 renew compares the owner"},
		},
		{
			name:   "renew ignores the token",
			plant:  each(func(c *calls) { c.renew = forgets(c, c.renew, false, true) }),
			caught: []string{"L7 renew compares the token"},
		},
		{
			name:   "renew by key only",
			plant:  each(func(c *calls) { c.renew = forgets(c, c.renew, true, true) }),
			caught: []string{"L3 a lease that another took says so", "L7 a lost lease is never renewed back"},
		},
		{
			name: "renew after loss",
			plant: each(func(c *calls) {
				inner := *c
				c.renew = func(ctx context.Context, r driver.Request) error {
					err := inner.renew(ctx, r)
					if h, _ := inner.inspect(ctx, r.Name); errors.Is(err, driver.ErrNotHeld) && !h.Held() {
						_, err = inner.acquire(ctx, r)
					}
					return err
				}
			}),
			caught: []string{"L7 a lost lease is never renewed back"},
		},
		{
			name: "renew keeps the old end",
			plant: each(func(c *calls) {
				c.renew = func(ctx context.Context, r driver.Request) error { return c.proclaim(ctx, r) }
			}),
			caught: []string{
				"L2 a renewal lives for its TTL", "L5 a lease is held for as long as its holder lives", "L5 many leases are renewed together",
				"E2 renewal goes on until the callback has returned",
			},
		},
		{
			name: "renew loses the lease",
			plant: each(func(c *calls) {
				inner := c.release
				c.renew = func(ctx context.Context, r driver.Request) error {
					_ = inner(ctx, r)
					return &driver.NotHeldError{}
				}
			}),
			caught: []string{"L4 suspect while renewals fail, held again when they work", "L5 a lease is held for as long as its holder lives"},
		},
		{
			name:  "expires early",
			plant: each(func(c *calls) { onTTL(c, func(ttl time.Duration) time.Duration { return ttl * 3 / 4 }) }),
			caught: []string{
				"L2 a grant lives for its TTL", "L2 a renewal lives for its TTL", "L2 no other owner gets the lock before its holder's deadline", "K7 no TTL is rounded",
			},
		},
		{
			name:  "expires late",
			plant: each(func(c *calls) { onTTL(c, func(ttl time.Duration) time.Duration { return ttl + 2*time.Second }) }),
			caught: []string{
				"L2 a grant lives for its TTL", "L2 a renewal lives for its TTL", "K4 the expiry of a holder that is gone is noticed",
				"K3 what cannot be settled is indeterminate, with a time that holds", "E3 observe shows expiry",
				"L5 a frozen host loses its lock to another",
			},
		},
		{
			name: "silent TTL rounding",
			plant: each(func(c *calls) {
				onTTL(c, func(ttl time.Duration) time.Duration { return max(ttl.Round(time.Second), time.Second) })
			}),
			caught: []string{"K7 no TTL is rounded", "L2 a grant lives for its TTL"},
		},
		{
			name: "batch mixes up its results",
			plant: each(func(c *calls) {
				inner := c.batch
				c.batch = func(ctx context.Context, ops []driver.Op) []driver.Result {
					results := inner(ctx, ops)
					return append(results[1:], results[0])
				}
			}),
			caught: []string{"L5 a batch does what single calls do"},
		},
		{
			name: "batch leaves out its last",
			plant: each(func(c *calls) {
				inner := c.batch
				c.batch = func(ctx context.Context, ops []driver.Op) []driver.Result {
					return append(inner(ctx, ops[:len(ops)-1]), driver.Result{})
				}
			}),
			caught: []string{"L5 a batch does what single calls do", "L5 many leases are renewed together"},
		},
		{
			name: "close releases the leases",
			plant: each(func(c *calls) {
				inner := *c
				c.close = func(ctx context.Context) error {
					_ = inner.list(ctx, "", func(h driver.Holder) bool {
						_ = inner.release(ctx, driver.Request{Name: h.Name, Owner: h.Owner, Token: h.Token})
						return true
					})
					return inner.close(ctx)
				}
			}),
			caught: []string{"L8 another process renews and releases a lease"},
		},
	}
}

func succeed(context.Context, driver.Request) error { return nil }

func withdrawsNothing(context.Context, string, string) error { return nil }

func onTTL(c *calls, change func(time.Duration) time.Duration) {
	acquire, renew := c.acquire, c.renew
	c.acquire = func(ctx context.Context, r driver.Request) (uint64, error) {
		r.TTL = change(r.TTL)
		return acquire(ctx, r)
	}
	c.renew = func(ctx context.Context, r driver.Request) error {
		r.TTL = change(r.TTL)
		return renew(ctx, r)
	}
}
