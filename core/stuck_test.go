package core

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// stuckContext is a context of an application. Its methods block while stuck is set.
type stuckContext struct {
	context.Context
	stuck atomic.Bool
	freed chan struct{}
}

func newStuck(ctx context.Context) *stuckContext {
	return &stuckContext{Context: ctx, freed: make(chan struct{})}
}

func (c *stuckContext) pass() {
	if c.stuck.Load() {
		<-c.freed
	}
}

func (c *stuckContext) Done() <-chan struct{} { c.pass(); return c.Context.Done() }
func (c *stuckContext) Err() error            { c.pass(); return c.Context.Err() }
func (c *stuckContext) Value(key any) any     { c.pass(); return c.Context.Value(key) }

// TestL3StuckContextsHoldNothingUp blocks the application's context, which one lease uses, while
// that lease is renewed and ends. The client must still renew its second lease in time.
func TestL3StuckContextsHoldNothingUp(t *testing.T) {
	const ttl = 2 * time.Second
	for name, end := range map[string]func(*fake, *Lease){
		"lost":     func(f *fake, _ *Lease) { f.forget("mine") },
		"max hold": func(*fake, *Lease) { time.Sleep(3 * ttl) },
		"released": func(_ *fake, l *Lease) { go l.Release(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				c, _ := open(t, f)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				app := newStuck(ctx)
				defer close(app.freed)
				mine, err := lockOf(t, c, "mine", &LockOptions{TTL: ttl, MaxHold: 3 * ttl}).Acquire(app)
				if err != nil {
					t.Fatal(err)
				}
				other := acquire(t, lockOf(t, c, "other", &LockOptions{TTL: ttl}))
				work, stop := mine.Context(app)
				defer stop()
				more, stop := mine.Context(app)
				defer stop()
				app.stuck.Store(true)
				time.Sleep(ttl) // time for renewals
				end(f, mine)
				<-mine.Done()
				synctest.Wait()
				for _, ctx := range []context.Context{work, more} {
					if context.Cause(ctx) != mine.Err() || mine.Err() == nil {
						t.Errorf("a context of a lease that ended by %v: %v", mine.Err(), context.Cause(ctx))
					}
				}
				time.Sleep(10 * ttl)
				if !other.Valid() || other.State() != Held {
					t.Errorf("the other lease is %v: %v", other.State(), other.Err())
				}
			})
		})
	}
}

// TestStuckContextEndsNoOtherCall makes two calls to a backend that does not answer, and
// blocks the context of the first call. The second call must still end in time.
func TestStuckContextEndsNoOtherCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		c, _ := open(t, f)
		app := newStuck(t.Context())
		f.hook(func(ctx context.Context, _ string, r driver.Request) error {
			if r.Name == "stuck" {
				app.stuck.Store(true)
			}
			<-ctx.Done()
			return ErrUnavailable
		}, nil)
		go lockOf(t, c, "stuck", nil).TryAcquire(app)
		synctest.Wait()
		began := time.Now()
		tried := make(chan error, 1)
		go func() {
			_, err := lockOf(t, c, "other", nil).TryAcquire(t.Context())
			tried <- err
		}()
		select {
		case err := <-tried:
			if err == nil {
				t.Error("granted by a backend that does not answer")
			}
		case <-time.After(time.Minute):
			t.Errorf("a try has not ended after %v", time.Since(began))
		}
		close(app.freed)
	})
}
