package drivertest

import (
	"context"
	"errors"
	"path"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

func grantBugs() []bug {
	return []bug{
		{
			name:  "double grant",
			plant: each(doubleGrant),
			caught: []string{
				"K4 no two holders under contention", "K1 acquire waits for the release", "L1 a lock is not reentrant", "E1 a lock and an election of one name are one",
				"K2 try decides once and says who holds", "K1 acquire ends with its ctx",
			},
		},
		{
			name: "asking again renews",
			plant: each(func(c *calls) {
				inner := *c
				c.acquire = func(ctx context.Context, r driver.Request) (uint64, error) {
					if h, _ := inner.inspect(ctx, r.Name); h.Owner == r.Owner {
						r.Token = h.Token
						return h.Token, inner.renew(ctx, r)
					}
					return inner.acquire(ctx, r)
				}
			}),
			caught: []string{"L1 a holder that asks again is refused and not renewed"},
		},
		{
			name: "reentrant for one label",
			plant: each(func(c *calls) {
				inner := *c
				c.acquire = func(ctx context.Context, r driver.Request) (uint64, error) {
					if h, _ := inner.inspect(ctx, r.Name); h.Held() && h.Label == r.Label {
						return h.Token, nil
					}
					return inner.acquire(ctx, r)
				}
			}),
			caught: []string{"L1 a lock is not reentrant"},
		},
		{
			name: "grants each lock once",
			plant: func(*fixture) func(*calls) {
				var granted sync.Map
				return func(c *calls) {
					inner := c.acquire
					hintsOnly(c)
					c.acquire = func(ctx context.Context, r driver.Request) (uint64, error) {
						if _, before := granted.Load(r.Name); before {
							return 0, &driver.HeldError{}
						}
						token, err := inner(ctx, r)
						if err == nil {
							granted.Store(r.Name, true)
						}
						return token, err
					}
				}
			},
			caught: []string{
				"E1 leadership passes to the next candidate",
			},
		},
		{
			name: "grants nothing",
			plant: each(func(c *calls) {
				c.acquire = func(context.Context, driver.Request) (uint64, error) { return 0, &driver.HeldError{} }
			}),
			caught: []string{"K1 acquire waits for the release", "K2 try decides once and says who holds"},
		},
		{
			name:   "refusal without remaining TTL",
			plant:  each(func(c *calls) { onRefusal(c, func(h driver.Holder) driver.Holder { h.TTL = 0; return h }) }),
			caught: []string{"K2 a refusal carries the remaining TTL", "K2 try decides once and says who holds", "K4 the expiry of a holder that is gone is noticed"},
		},
		{
			name: "refusal names nobody",
			plant: each(func(c *calls) {
				onRefusal(c, func(h driver.Holder) driver.Holder { h.Owner, h.Label = "", ""; return h })
			}),
			caught: []string{"K2 try decides once and says who holds", "L1 a holder that asks again is refused and not renewed"},
		},
		{
			name: "refused try stays in the queue",
			plant: each(func(c *calls) {
				inner := *c
				c.acquire = func(ctx context.Context, r driver.Request) (uint64, error) {
					token, err := inner.acquire(ctx, r)
					if errors.Is(err, driver.ErrHeld) {
						_, _ = inner.wait(ctx, r, 0)
					}
					return token, err
				}
			}),
			caught: []string{"K2 a refused try leaves nothing behind"},
		},
		{
			name:   "keeps an entry for each name",
			plant:  keeps(func(name string) string { return "entry of " + name }),
			caught: []string{"K2 a refused try leaves nothing behind", "K3 acquires cancelled at random leave nothing and block no client"},
		},
		{
			name: "keeps an entry for each name that expires",
			plant: each(func(c *calls) {
				keeps(func(name string) string { return "entry of " + name })(nil)(c)
				inner := *c
				c.release = func(ctx context.Context, r driver.Request) error {
					if r.Keep == 0 {
						_ = inner.withdraw(ctx, "entry of "+r.Name, r.Owner)
					}
					return inner.release(ctx, r)
				}
			}),
			caught: []string{"K2 a refused try leaves nothing behind"},
		},
		{
			name:   "inspect shows the label as the owner",
			plant:  each(func(c *calls) { onInspect(c, func(h driver.Holder) driver.Holder { h.Owner = h.Label; return h }) }),
			caught: []string{"K2 inspect says what the store knows", "L1 every grant has an owner of its own"},
		},
		{
			name:   "inspect shows nobody",
			plant:  each(func(c *calls) { onInspect(c, func(driver.Holder) driver.Holder { return driver.Holder{} }) }),
			caught: []string{"K2 inspect says what the store knows"},
		},
		{
			name: "inspect rounds the TTL up",
			plant: each(func(c *calls) {
				onInspect(c, func(h driver.Holder) driver.Holder {
					if h.Held() {
						h.TTL = (h.TTL + time.Second).Truncate(time.Second)
					}
					return h
				})
			}),
			caught: []string{"K2 inspect says what the store knows", "K7 no TTL is rounded"},
		},
		{
			name: "list takes the prefix for a pattern",
			plant: each(func(c *calls) {
				inner := c.list
				c.list = func(ctx context.Context, prefix string, emit func(driver.Holder) bool) error {
					return inner(ctx, "", func(h driver.Holder) bool {
						if match, _ := path.Match(prefix+"*", h.Name); match || prefix == "" {
							return emit(h)
						}
						return true
					})
				}
			}),
			caught: []string{"K6 list takes its prefix literally"},
		},
		{
			name: "break does nothing",
			plant: each(func(c *calls) {
				c.breaks = func(context.Context, string, uint64) error { return nil }
			}),
			caught: []string{"L3 a broken lease is lost at the next renewal", "L6 tokens rise over break"},
		},
	}
}

func doubleGrant(c *calls) {
	inner := *c
	c.acquire = func(ctx context.Context, r driver.Request) (uint64, error) {
		token, err := inner.acquire(ctx, r)
		if held := (*driver.HeldError)(nil); errors.As(err, &held) {
			return held.Holder.Token + 1, nil
		}
		return token, err
	}
}

func onRefusal(c *calls, change func(driver.Holder) driver.Holder) {
	inner := c.acquire
	c.acquire = func(ctx context.Context, r driver.Request) (uint64, error) {
		token, err := inner(ctx, r)
		if held := (*driver.HeldError)(nil); errors.As(err, &held) {
			return 0, &driver.HeldError{Holder: change(held.Holder)}
		}
		return token, err
	}
}

func onInspect(c *calls, change func(driver.Holder) driver.Holder) {
	inner := c.inspect
	c.inspect = func(ctx context.Context, name string) (driver.Holder, error) {
		h, err := inner(ctx, name)
		return change(h), err
	}
}

// keeps is a bug: each acquire also makes an entry in the store, and the entry stays there.
func keeps(entry func(name string) string) func(*fixture) func(*calls) {
	return each(func(c *calls) {
		inner := c.acquire
		c.acquire = func(ctx context.Context, r driver.Request) (uint64, error) {
			_, _ = inner(ctx, driver.Request{Name: entry(r.Name), Owner: r.Owner, TTL: time.Hour})
			return inner(ctx, r)
		}
	})
}
