package drivertest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

type whole interface {
	driver.Backend
	driver.Waiter
	driver.Observer
	driver.Watcher
	driver.Batcher
	driver.Admin
}

// calls is a backend with every capability. A planted bug or a valve can replace each of its
// methods separately.
type calls struct {
	props    func() driver.Properties
	check    func(context.Context) error
	close    func(context.Context) error
	acquire  func(context.Context, driver.Request) (uint64, error)
	renew    func(context.Context, driver.Request) error
	release  func(context.Context, driver.Request) error
	withdraw func(ctx context.Context, name, owner string) error
	proclaim func(context.Context, driver.Request) error
	inspect  func(context.Context, string) (driver.Holder, error)
	observe  func(context.Context, string, func(driver.Holder)) error
	wait     func(context.Context, driver.Request, time.Duration) (driver.Grant, error)
	notify   func(context.Context, string, func()) error
	watch    func(context.Context, func(driver.Notice)) error
	batch    func(context.Context, []driver.Op) []driver.Result
	list     func(context.Context, string, func(driver.Holder) bool) error
	breaks   func(context.Context, string, uint64) error
}

// callsOf returns the methods of b as calls. Its batch method does the operations one by one, so
// that a bug in an operation also affects batches.
func callsOf(b whole) *calls {
	c := &calls{
		props: b.Properties, check: b.Check, close: b.Close,
		acquire: b.TryAcquire, renew: b.Renew, release: b.Release, withdraw: b.Withdraw, proclaim: b.Proclaim, inspect: b.Inspect, observe: b.Observe,
		wait: b.Wait, watch: b.Watch, list: b.List, breaks: b.Break,
	}
	c.notify = func(ctx context.Context, name string, emit func()) error {
		first, owner := true, ""
		return c.observe(ctx, name, func(h driver.Holder) {
			if first || owner != "" && h.Owner != owner {
				emit()
			}
			first, owner = false, h.Owner
		})
	}
	if n, ok := b.(driver.Notifier); ok {
		c.notify = n.Notify
	}
	c.batch = func(ctx context.Context, ops []driver.Op) []driver.Result {
		results := make([]driver.Result, len(ops))
		for i, op := range ops {
			switch op.Kind {
			case driver.OpAcquire:
				results[i].Token, results[i].Err = c.acquire(ctx, op.Request)
			case driver.OpRenew:
				results[i].Err = c.renew(ctx, op.Request)
			case driver.OpRelease:
				results[i].Err = c.release(ctx, op.Request)
			case driver.OpWithdraw:
				results[i].Err = c.withdraw(ctx, op.Name, op.Owner)
			}
		}
		return results
	}
	return c
}

func (c *calls) Properties() driver.Properties   { return c.props() }
func (c *calls) Check(ctx context.Context) error { return c.check(ctx) }
func (c *calls) Close(ctx context.Context) error { return c.close(ctx) }
func (c *calls) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	return c.acquire(ctx, r)
}
func (c *calls) Renew(ctx context.Context, r driver.Request) error   { return c.renew(ctx, r) }
func (c *calls) Release(ctx context.Context, r driver.Request) error { return c.release(ctx, r) }
func (c *calls) Withdraw(ctx context.Context, name, owner string) error {
	return c.withdraw(ctx, name, owner)
}
func (c *calls) Proclaim(ctx context.Context, r driver.Request) error { return c.proclaim(ctx, r) }
func (c *calls) Inspect(ctx context.Context, name string) (driver.Holder, error) {
	return c.inspect(ctx, name)
}
func (c *calls) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	return c.observe(ctx, name, emit)
}
func (c *calls) Wait(ctx context.Context, r driver.Request, limit time.Duration) (driver.Grant, error) {
	return c.wait(ctx, r, limit)
}
func (c *calls) Notify(ctx context.Context, name string, emit func()) error {
	return c.notify(ctx, name, emit)
}
func (c *calls) Watch(ctx context.Context, emit func(driver.Notice)) error  { return c.watch(ctx, emit) }
func (c *calls) Batch(ctx context.Context, ops []driver.Op) []driver.Result { return c.batch(ctx, ops) }
func (c *calls) List(ctx context.Context, prefix string, emit func(driver.Holder) bool) error {
	return c.list(ctx, prefix, emit)
}
func (c *calls) Break(ctx context.Context, name string, token uint64) error {
	return c.breaks(ctx, name, token)
}

// valve simulates a server, a plugin or a host that may be down or frozen. While it is down, the
// calls through the valve fail. While it is frozen, they wait.
type valve struct {
	mu           sync.Mutex
	down, frozen bool
	changed      chan struct{} // closed and replaced by set
	up           context.Context
	cut          context.CancelFunc // cancels the calls in flight
	still        chan struct{}      // closed to end streams while the process is frozen or down
}

func newValve() *valve {
	v := &valve{changed: make(chan struct{}), still: make(chan struct{})}
	v.up, v.cut = context.WithCancel(context.Background())
	return v
}

func (v *valve) set(down, frozen bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.down && !down {
		v.up, v.cut = context.WithCancel(context.Background())
	}
	if down {
		v.cut()
	}
	if was := v.down || v.frozen; !was && (down || frozen) {
		close(v.still)
	} else if was && !down && !frozen {
		v.still = make(chan struct{})
	}
	v.down, v.frozen = down, frozen
	close(v.changed)
	v.changed = make(chan struct{})
}

// The stream method ends f when the process behind the valve is frozen or down.
func (v *valve) stream(ctx context.Context, f func(context.Context) error) error {
	v.mu.Lock()
	still := v.still
	v.mu.Unlock()
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-still:
			cancel()
		case <-within.Done():
		}
	}()
	if err := f(within); ctx.Err() != nil || within.Err() == nil {
		return err
	}
	return fmt.Errorf("%w: it stands still", driver.ErrUnavailable)
}

func (v *valve) do(ctx context.Context, f func(context.Context) error) error {
	for {
		v.mu.Lock()
		down, frozen, changed, up := v.down, v.frozen, v.changed, v.up
		v.mu.Unlock()
		switch {
		case down:
			return fmt.Errorf("%w: %w: it is down", driver.ErrUnavailable, driver.ErrNotSent)
		case !frozen:
			within, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(up, cancel)()
			err := f(within)
			if up.Err() != nil && ctx.Err() == nil {
				return fmt.Errorf("%w: it went down", driver.ErrUnavailable)
			}
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
		}
	}
}

// The behind method returns calls that go through the valve v, except Properties and Close.
func (c *calls) behind(v *valve) *calls {
	one := func(f func(context.Context, driver.Request) error) func(context.Context, driver.Request) error {
		return func(ctx context.Context, r driver.Request) error {
			return v.do(ctx, func(ctx context.Context) error { return f(ctx, r) })
		}
	}
	return &calls{
		props: c.props, close: c.close,
		renew: one(c.Renew), release: one(c.Release), proclaim: one(c.Proclaim),
		withdraw: func(ctx context.Context, name, owner string) error {
			return v.do(ctx, func(ctx context.Context) error { return c.withdraw(ctx, name, owner) })
		},
		check: func(ctx context.Context) error { return v.do(ctx, c.Check) },
		acquire: func(ctx context.Context, r driver.Request) (token uint64, err error) {
			err = v.do(ctx, func(ctx context.Context) (err error) { token, err = c.acquire(ctx, r); return err })
			return token, err
		},
		inspect: func(ctx context.Context, name string) (h driver.Holder, err error) {
			err = v.do(ctx, func(ctx context.Context) (err error) { h, err = c.inspect(ctx, name); return err })
			return h, err
		},
		observe: func(ctx context.Context, name string, emit func(driver.Holder)) error {
			return v.do(ctx, func(ctx context.Context) error {
				return v.stream(ctx, func(ctx context.Context) error { return c.observe(ctx, name, emit) })
			})
		},
		wait: func(ctx context.Context, r driver.Request, limit time.Duration) (g driver.Grant, err error) {
			err = v.do(ctx, func(ctx context.Context) (err error) { g, err = c.wait(ctx, r, limit); return err })
			return g, err
		},
		notify: func(ctx context.Context, name string, emit func()) error {
			return v.do(ctx, func(ctx context.Context) error {
				return v.stream(ctx, func(ctx context.Context) error { return c.notify(ctx, name, emit) })
			})
		},
		watch: func(ctx context.Context, emit func(driver.Notice)) error {
			return v.do(ctx, func(ctx context.Context) error { return c.watch(ctx, emit) })
		},
		batch: func(ctx context.Context, ops []driver.Op) (results []driver.Result) {
			err := v.do(ctx, func(ctx context.Context) error { results = c.batch(ctx, ops); return nil })
			if err != nil {
				results = make([]driver.Result, len(ops))
				for i := range results {
					results[i].Err = err
				}
			}
			return results
		},
		list: func(ctx context.Context, prefix string, emit func(driver.Holder) bool) error {
			return v.do(ctx, func(ctx context.Context) error { return c.list(ctx, prefix, emit) })
		},
		breaks: func(ctx context.Context, name string, token uint64) error {
			return v.do(ctx, func(ctx context.Context) error { return c.breaks(ctx, name, token) })
		},
	}
}
