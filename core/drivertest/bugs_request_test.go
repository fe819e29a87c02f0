package drivertest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

func requestBugs() []bug {
	return []bug{
		{
			name:   "names lose trailing blanks",
			plant:  each(func(c *calls) { rename(c, func(name string) string { return strings.TrimRight(name, " ") }) }),
			caught: []string{"K6 names are kept as they are and never collide"},
		},
		{
			name:   "names ignore case",
			plant:  each(func(c *calls) { rename(c, strings.ToLower) }),
			caught: []string{"K6 names are kept as they are and never collide"},
		},
		{
			name: "names end at NUL",
			plant: each(func(c *calls) {
				rename(c, func(name string) string { name, _, _ = strings.Cut(name, "\x00"); return name })
			}),
			caught: []string{"K6 names are kept as they are and never collide"},
		},
		{name: "one namespace for all", sameNamespace: true, caught: []string{"K6 names of two namespaces never collide"}},
		{
			name: "unavailable reported as held",
			plant: each(func(c *calls) {
				inner := c.acquire
				c.acquire = func(ctx context.Context, r driver.Request) (uint64, error) {
					token, err := inner(ctx, r)
					if errors.Is(err, driver.ErrUnavailable) {
						return 0, &driver.HeldError{}
					}
					return token, err
				}
			}),
			caught: []string{"K8 try fails fast when the server is down", "K8 calls end with their ctx when the server is frozen"},
		},
		{name: "a refusal reported as an outage", hidesRefusal: true, caught: []string{"K8 a client that the server refuses is told so"}},
		{name: "nobody reconnects", neverBack: true, caught: []string{
			"K8 acquire gets the lock when the server is back", "K8 try fails fast when the server is down",
			"E3 elected, updated, vacant, stale in order with a server that stops",
		}},
		{
			name:   "calls hang",
			plant:  func(w *fixture) func(*calls) { return func(c *calls) { hang(c, w.over) } },
			caught: []string{"K8 a call whose ctx has ended returns", "K8 calls end with their ctx when the server is frozen", "K1 acquire ends with its ctx"},
		},
		{
			name: "every timeout is reported as not sent",
			plant: each(func(c *calls) {
				inner := c.acquire
				c.acquire = func(ctx context.Context, r driver.Request) (uint64, error) {
					answered := make(chan driver.Result, 1)
					go func() {
						token, err := inner(context.WithoutCancel(ctx), r)
						answered <- driver.Result{Token: token, Err: err}
					}()
					select {
					case a := <-answered:
						return a.Token, a.Err
					case <-ctx.Done():
						return 0, errors.Join(driver.ErrUnavailable, driver.ErrNotSent, ctx.Err())
					}
				}
			}),
			caught: []string{"K8 calls end with their ctx when the server is frozen"},
		},
		{
			name: "withdraw hangs",
			plant: func(w *fixture) func(*calls) {
				return func(c *calls) { c.withdraw = func(context.Context, string, string) error { <-w.over; return nil } }
			},
			caught: []string{"K8 calls end with their ctx when the server is frozen"},
		},
		{
			name:   "close is forgotten",
			plant:  each(func(c *calls) { c.close = func(context.Context) error { return nil } }),
			caught: []string{"K8 a closed backend says so"},
		},
		{
			name:   "proclaim by key only",
			plant:  each(func(c *calls) { c.proclaim = forgets(c, c.proclaim, true, true) }),
			caught: []string{"E1 proclaim compares owner and token"},
		},
		{
			name:   "proclaim ignores the token",
			plant:  each(func(c *calls) { c.proclaim = forgets(c, c.proclaim, false, true) }),
			caught: []string{"E1 proclaim compares owner and token"},
		},
		{
			name:  "proclaim does nothing",
			plant: each(func(c *calls) { c.proclaim = succeed }),
			caught: []string{
				"E1 proclaim compares owner and token", "E3 observe shows every change in order",
			},
		},
		{
			name: "observe leaves out vacant",
			plant: each(func(c *calls) {
				onObserve(c, func(h driver.Holder, emit func(driver.Holder)) {
					if h.Held() {
						emit(h)
					}
				})
			}),
			caught: []string{
				"E3 observe shows every change in order", "E3 observe shows expiry",
				"E3 elected, updated, vacant, stale in order with a server that stops",
			},
		},
		{
			name:   "observe shows old news",
			plant:  each(showsOldNews),
			caught: []string{"E3 tokens never go back in observe", "E3 observe shows every change in order"},
		},
		{name: "observe has a backlog", plant: backlog, caught: []string{"E3 a slow reader sees the newest"}},
		{
			name: "observe hides that the store is away",
			plant: each(func(c *calls) {
				inner := c.observe
				c.observe = func(ctx context.Context, name string, emit func(driver.Holder)) error {
					for ctx.Err() == nil {
						_ = inner(ctx, name, emit)
						time.Sleep(10 * time.Millisecond)
					}
					return ctx.Err()
				}
			}),
			caught: []string{"E3 elected, updated, vacant, stale in order with a server that stops", "E3 an observer whose question is lost says so, and goes on"},
		},
		{
			name: "observe asks without a bound",
			plant: each(func(c *calls) {
				inner := c.inspect
				c.observe = func(ctx context.Context, name string, emit func(driver.Holder)) error {
					for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
						h, err := inner(context.WithoutCancel(ctx), name)
						if err != nil {
							return err
						}
						emit(h)
					}
					return ctx.Err()
				}
			}),
			caught: []string{"E3 an observer whose question is lost says so, and goes on"},
		},
	}
}

// rename is a bug: the store gets f(name) instead of a lock's name.
func rename(c *calls, f func(string) string) {
	inner := *c
	to := func(r driver.Request) driver.Request { r.Name = f(r.Name); return r }
	c.acquire = func(ctx context.Context, r driver.Request) (uint64, error) { return inner.acquire(ctx, to(r)) }
	c.renew = func(ctx context.Context, r driver.Request) error { return inner.renew(ctx, to(r)) }
	c.release = func(ctx context.Context, r driver.Request) error { return inner.release(ctx, to(r)) }
	c.inspect = func(ctx context.Context, name string) (driver.Holder, error) {
		h, err := inner.inspect(ctx, f(name))
		if h.Held() {
			h.Name = name
		}
		return h, err
	}
}

// hang is a bug: Wait, and TryAcquire after its first call, ignore ctx until the case has ended.
func hang(c *calls, over <-chan struct{}) {
	inner := *c
	acquired := false
	var mu sync.Mutex
	c.acquire = func(ctx context.Context, r driver.Request) (uint64, error) {
		mu.Lock()
		first := !acquired
		acquired = true
		mu.Unlock()
		if first {
			return inner.acquire(ctx, r)
		}
		<-over
		return 0, driver.ErrUnavailable
	}
	c.wait = func(context.Context, driver.Request, time.Duration) (none driver.Grant, _ error) {
		<-over
		return none, driver.ErrUnavailable
	}
}

func onObserve(c *calls, change func(h driver.Holder, emit func(driver.Holder))) {
	inner := c.observe
	c.observe = func(ctx context.Context, name string, emit func(driver.Holder)) error {
		return inner(ctx, name, func(h driver.Holder) { change(h, emit) })
	}
}

// showsOldNews is a bug: Observe emits an older holder once more after each change.
func showsOldNews(c *calls) {
	var old driver.Holder
	onObserve(c, func(h driver.Holder, emit func(driver.Holder)) {
		emit(h)
		if old.Held() && h.Held() {
			emit(old)
			emit(h)
		}
		if h.Held() {
			old = h
		}
	})
}

// backlog is a bug: Observe emits every proclaimed value one after another, not only the newest.
func backlog(*fixture) func(*calls) {
	var (
		mu  sync.Mutex
		all []driver.Holder
	)
	return func(c *calls) {
		inner := *c
		c.proclaim = func(ctx context.Context, r driver.Request) error {
			err := inner.proclaim(ctx, r)
			h, _ := inner.inspect(ctx, r.Name)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, h)
			return err
		}
		c.observe = func(ctx context.Context, name string, emit func(driver.Holder)) error {
			emit(driver.Holder{})
			for shown := 0; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
				mu.Lock()
				next := all[min(shown, len(all)):]
				mu.Unlock()
				if len(next) > 0 {
					emit(next[0])
					shown++
				}
			}
			return ctx.Err()
		}
	}
}
