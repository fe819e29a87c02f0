package drivertest

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

const notifierCase = "K4 a notifier tells of every release, and of little else"

func queueBugs() []bug {
	return []bug{
		{name: "lost wake-up", plant: lostWakeUp, caught: []string{"K4 no release is missed by a waiter"}},
		{
			name:   "wakes everybody",
			plant:  each(wakesEverybody),
			caught: []string{"K5 a release wakes one waiter", "K5 waiters of different hosts are granted in their order"},
		},
		{
			name:   "wakes the last waiter first",
			plant:  lastFirst,
			caught: []string{"K5 waiters of different hosts are granted in their order", "K5 a waiter that withdraws passes its turn on"},
		},
		{
			name: "wait ignores its limit",
			plant: each(func(c *calls) {
				inner := c.wait
				c.wait = func(ctx context.Context, r driver.Request, _ time.Duration) (driver.Grant, error) {
					return inner(ctx, r, time.Hour)
				}
			}),
			caught: []string{"K4 wait returns when the lock is free, at its limit, and with its ctx"},
		},
		{
			name: "wakes for nothing",
			plant: each(func(c *calls) {
				c.wait = func(context.Context, driver.Request, time.Duration) (none driver.Grant, _ error) { return none, nil }
			}),
			caught: []string{"K4 wait returns when the lock is free, at its limit, and with its ctx"},
		},
		{
			name: "tells of no withdrawal",
			plant: func(*fixture) func(*calls) {
				var deaf atomic.Bool
				return func(c *calls) {
					notify, withdraw := c.notify, c.withdraw
					c.withdraw = func(ctx context.Context, name, owner string) error {
						deaf.Store(true)
						return withdraw(ctx, name, owner)
					}
					c.notify = func(ctx context.Context, name string, emit func()) error {
						return notify(ctx, name, func() {
							if !deaf.Load() {
								emit()
							}
						})
					}
				}
			},
			caught: []string{notifierCase},
		},
		{
			name: "hears before it listens",
			plant: each(func(c *calls) {
				inner := c.notify
				c.notify = func(ctx context.Context, name string, emit func()) error {
					emit()
					time.Sleep(20 * time.Millisecond)
					first := true
					return inner(ctx, name, func() {
						if !first {
							emit()
						}
						first = false
					})
				}
			}),
			caught: []string{notifierCase},
		},
		{
			name: "tells of nothing over and over",
			plant: each(func(c *calls) {
				c.notify = func(ctx context.Context, _ string, emit func()) error {
					for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
						emit()
					}
					return ctx.Err()
				}
			}),
			caught: []string{notifierCase},
		},
		{
			name: "deadline counted from the push",
			plant: each(func(c *calls) {
				inner := c.wait
				c.wait = func(ctx context.Context, r driver.Request, limit time.Duration) (driver.Grant, error) {
					g, err := inner(ctx, r, limit)
					time.Sleep(50 * time.Millisecond)
					g.Sent = time.Now()
					return g, err
				}
			}),
			caught: []string{"K4 a wake-up may carry a grant, which ends for its waiter first"},
		},
		{
			name:   "a grant twice",
			plant:  each(grantsTwice),
			caught: []string{"K4 a grant whose wake-up is lost or late is confirmed by asking"},
		},
		{name: "grant to a dead waiter for its TTL", plant: each(grantsForTTL), caught: []string{"K4 a waiter that is gone costs the first span"}},
		{
			name: "the plugin asks for its host",
			plant: each(func(c *calls) {
				wait, acquire := c.wait, c.acquire
				c.wait = func(ctx context.Context, r driver.Request, limit time.Duration) (driver.Grant, error) {
					g, err := wait(ctx, r, limit)
					if err == nil && r.Keep > 0 {
						g.Sent, g.For = time.Now(), 500*time.Millisecond
						g.Token, err = acquire(ctx, r)
					}
					return g, err
				}
			}),
			caught: []string{"K4 a waiting host that is frozen costs the first span"},
		},
		{
			name: "grant to a waiter without a sign of life",
			plant: func(w *fixture) func(*calls) {
				return func(c *calls) {
					inner := *c
					c.wait = func(ctx context.Context, r driver.Request, limit time.Duration) (driver.Grant, error) {
						go func() {
							for g, err := inner.wait(context.Background(), r, time.Minute); g.Token == 0 && err == nil; {
								g, err = inner.wait(context.Background(), r, time.Minute)
							}
						}()
						return inner.wait(ctx, r, limit)
					}
				}
			},
			caught: []string{"K4 a waiter that gives no sign of life is passed over"},
		},
		{
			name: "withdrawal spares the store's own grant",
			plant: each(func(c *calls) {
				inner := *c
				var asked sync.Map
				c.acquire = func(ctx context.Context, r driver.Request) (uint64, error) {
					token, err := inner.acquire(ctx, r)
					if err == nil {
						asked.Store(r.Owner, true)
					}
					return token, err
				}
				c.withdraw = func(ctx context.Context, name, owner string) error {
					h, err := inner.inspect(ctx, name)
					if _, has := asked.Load(owner); err == nil && h.Owner == owner && !has {
						return nil
					}
					return inner.withdraw(ctx, name, owner)
				}
			}),
			caught: []string{"K4 a withdrawal undoes a grant on its way"},
		},
		{
			name: "the queue forgets a waiter between two waits",
			plant: each(func(c *calls) {
				inner := *c
				c.wait = func(ctx context.Context, r driver.Request, limit time.Duration) (none driver.Grant, _ error) {
					r.Owner = rand.Text()
					_, err := inner.wait(ctx, r, limit)
					_ = inner.withdraw(context.WithoutCancel(ctx), r.Name, r.Owner)
					return none, err
				}
			}),
			caught: []string{"K5 a waiter between two waits keeps its place"},
		},
		{name: "vanished waiter keeps its turn", plant: keepsTurn, caught: []string{"K5 a waiter that vanished loses its turn"}},
		{name: "one host is favoured", plant: favours, caught: []string{"K5 a host that hands a lock over lets others have their turn"}},
		{
			name:  "leak on cancel",
			plant: each(func(c *calls) { slowly(c); c.withdraw = withdrawsNothing }),
			caught: []string{
				"K3 acquires cancelled at random leave nothing and block no client", "K3 an acquire whose reply was lost owns nothing",
				"K3 a withdrawal undoes a grant", "K3 a withdrawn owner is refused", "L6 tokens rise over withdrawal",
			},
		},
		{
			name:   "withdrawn owner accepted later",
			plant:  each(func(c *calls) { c.withdraw = withoutTombstone(c) }),
			caught: []string{"K3 a withdrawn owner is refused", "K3 a withdrawal undoes a grant"},
		},
		{
			name: "only the process that withdraws knows it",
			plant: each(func(c *calls) {
				var gone sync.Map
				acquire, withdraw := c.acquire, withoutTombstone(c)
				c.withdraw = func(ctx context.Context, name, owner string) error {
					gone.Store(owner, true)
					return withdraw(ctx, name, owner)
				}
				c.acquire = func(ctx context.Context, r driver.Request) (uint64, error) {
					if _, yes := gone.Load(r.Owner); yes {
						return 0, driver.ErrWithdrawn
					}
					return acquire(ctx, r)
				}
			}),
			caught: []string{"K3 a withdrawn owner is refused", "K3 a withdrawal undoes a grant"},
		},
		{
			name: "withdrawal by key only",
			plant: each(func(c *calls) {
				inner := *c
				c.withdraw = func(ctx context.Context, name, owner string) error {
					r := asHolder(ctx, &inner, driver.Request{Name: name, Owner: owner}, true, true)
					return inner.withdraw(ctx, name, r.Owner)
				}
			}),
			caught: []string{"K3 a withdrawal leaves other owners alone"},
		},
	}
}

// withoutTombstone is a bug: Withdraw releases the owner's lease, but no later request is refused.
func withoutTombstone(c *calls) func(ctx context.Context, name, owner string) error {
	inner := *c
	return func(ctx context.Context, name, owner string) error {
		if h, err := inner.inspect(ctx, name); err != nil || h.Owner == owner {
			return inner.release(ctx, driver.Request{Name: name, Owner: owner, Token: h.Token})
		}
		return nil
	}
}

// The function named slowly delays every second reply of TryAcquire by 200 ms. Core waits less than
// 200 ms for a reply after its caller has given up.
func slowly(c *calls) {
	inner := c.acquire
	var (
		mu sync.Mutex
		n  int
	)
	c.acquire = func(ctx context.Context, r driver.Request) (uint64, error) {
		token, err := inner(ctx, r)
		mu.Lock()
		n++
		slow := n%2 == 0
		mu.Unlock()
		if !slow {
			return token, err
		}
		select {
		case <-time.After(200 * time.Millisecond):
			return token, err
		case <-ctx.Done():
			return 0, errors.Join(driver.ErrUnavailable, ctx.Err())
		}
	}
}

// hintsOnly makes every Wait return the zero Grant, so that waiters call TryAcquire.
func hintsOnly(c *calls) {
	inner := c.wait
	c.wait = func(ctx context.Context, r driver.Request, limit time.Duration) (driver.Grant, error) {
		_, err := inner(ctx, r, limit)
		return driver.Grant{}, err
	}
}

// grantsTwice is a bug: TryAcquire grants the lock again to the owner that holds it.
func grantsTwice(c *calls) {
	inner := *c
	c.acquire = func(ctx context.Context, r driver.Request) (uint64, error) {
		token, err := inner.acquire(ctx, r)
		if held := (*driver.HeldError)(nil); errors.As(err, &held) && held.Holder.Owner == r.Owner {
			return held.Holder.Token, nil
		}
		return token, err
	}
}

// grantsForTTL is a bug: a grant that the store makes to a waiter lives for a whole TTL.
func grantsForTTL(c *calls) {
	inner := *c
	c.release = func(ctx context.Context, r driver.Request) error {
		err := inner.release(ctx, r)
		if h, looked := inner.inspect(ctx, r.Name); looked == nil && h.Held() {
			_ = inner.renew(ctx, driver.Request{Name: r.Name, Owner: h.Owner, Token: h.Token, TTL: lastingTTL})
		}
		return err
	}
}

// lostWakeUp is a bug: Wait checks whether the lock is free only before it enters the queue.
func lostWakeUp(*fixture) func(*calls) {
	var (
		mu     sync.Mutex
		asleep = map[string][]chan struct{}{}
	)
	return func(c *calls) {
		inner := *c
		c.wait = func(ctx context.Context, r driver.Request, limit time.Duration) (none driver.Grant, _ error) {
			if h, err := inner.inspect(ctx, r.Name); err != nil || !h.Held() {
				return none, err
			}
			time.Sleep(300 * time.Microsecond)
			woken := make(chan struct{})
			mu.Lock()
			asleep[r.Name] = append(asleep[r.Name], woken)
			mu.Unlock()
			select {
			case <-woken:
				return none, nil
			case <-time.After(limit):
				return none, nil
			case <-ctx.Done():
				return none, ctx.Err()
			}
		}
		c.release = func(ctx context.Context, r driver.Request) error {
			err := inner.release(ctx, r)
			mu.Lock()
			defer mu.Unlock()
			for _, woken := range asleep[r.Name] {
				close(woken)
			}
			delete(asleep, r.Name)
			return err
		}
	}
}

// lastFirst makes the store wake the newest waiter first, and reserve the lock for no waiter.
func lastFirst(*fixture) func(*calls) {
	type sleeper struct {
		owner string
		woken chan struct{}
	}
	var (
		mu     sync.Mutex
		asleep = map[string][]sleeper{}
	)
	leave := func(name, owner string) {
		mu.Lock()
		defer mu.Unlock()
		asleep[name] = slices.DeleteFunc(asleep[name], func(s sleeper) bool { return s.owner == owner })
	}
	return func(c *calls) {
		inner := *c
		wake := func(ctx context.Context, name string, err error) error {
			mu.Lock()
			defer mu.Unlock()
			h, _ := inner.inspect(ctx, name)
			if all := asleep[name]; !h.Held() && len(all) > 0 {
				close(all[len(all)-1].woken)
				asleep[name] = all[:len(all)-1]
			}
			return err
		}
		c.wait = func(ctx context.Context, r driver.Request, limit time.Duration) (none driver.Grant, _ error) {
			woken := make(chan struct{})
			leave(r.Name, r.Owner)
			mu.Lock()
			h, err := inner.inspect(ctx, r.Name)
			if err == nil && h.Held() {
				asleep[r.Name] = append(asleep[r.Name], sleeper{r.Owner, woken})
			}
			mu.Unlock()
			if err != nil || !h.Held() {
				return none, err
			}
			defer leave(r.Name, r.Owner)
			select {
			case <-woken:
			case <-time.After(limit):
			case <-ctx.Done():
				return none, ctx.Err()
			}
			return none, nil
		}
		c.release = func(ctx context.Context, r driver.Request) error { return wake(ctx, r.Name, inner.release(ctx, r)) }
		c.withdraw = func(ctx context.Context, name, owner string) error {
			err := inner.withdraw(ctx, name, owner)
			leave(name, owner)
			return wake(ctx, name, err)
		}
		onInspect(c, func(h driver.Holder) driver.Holder { h.Waiters = -1; return h })
	}
}

func wakesEverybody(c *calls) {
	inner := *c
	c.wait = func(ctx context.Context, r driver.Request, limit time.Duration) (none driver.Grant, _ error) {
		for until := time.Now().Add(limit); time.Now().Before(until); time.Sleep(time.Millisecond) {
			if h, err := inner.inspect(ctx, r.Name); err != nil || !h.Held() {
				return none, err
			}
			if ctx.Err() != nil {
				return none, ctx.Err()
			}
		}
		return none, nil
	}
	onInspect(c, func(h driver.Holder) driver.Holder { h.Waiters = -1; return h })
}

// keepsTurn is a bug: a free lock is kept for the first waiter until this waiter calls TryAcquire.
func keepsTurn(*fixture) func(*calls) {
	var (
		mu    sync.Mutex
		first = map[string]string{} // the owner, by lock name
	)
	return func(c *calls) {
		inner := *c
		c.wait = func(ctx context.Context, r driver.Request, limit time.Duration) (none driver.Grant, _ error) {
			mu.Lock()
			if first[r.Name] == "" {
				first[r.Name] = r.Owner
			}
			mu.Unlock()
			return inner.wait(ctx, r, limit)
		}
		c.acquire = func(ctx context.Context, r driver.Request) (uint64, error) {
			mu.Lock()
			defer mu.Unlock()
			if f := first[r.Name]; f != "" && f != r.Owner {
				return 0, &driver.HeldError{}
			}
			token, err := inner.acquire(ctx, r)
			if err == nil {
				delete(first, r.Name)
			}
			return token, err
		}
	}
}

// favours is a bug: during the first 300 ms, the store grants the lock only to the first host.
func favours(w *fixture) func(*calls) {
	start := time.Now()
	return func(c *calls) {
		first, inner := w.links == 1, *c
		c.acquire = func(ctx context.Context, r driver.Request) (uint64, error) {
			if time.Sleep(10 * time.Millisecond); !first && time.Since(start) < 300*time.Millisecond {
				return 0, &driver.HeldError{Holder: driver.Holder{Owner: "somebody", TTL: time.Second}}
			}
			return inner.acquire(ctx, r)
		}
		if !first { // only the first host gets a place in the queue
			c.wait = func(ctx context.Context, _ driver.Request, limit time.Duration) (none driver.Grant, _ error) {
				select {
				case <-time.After(limit):
					return none, nil
				case <-ctx.Done():
					return none, ctx.Err()
				}
			}
		}
	}
}
