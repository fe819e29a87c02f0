package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/proc"
)

const (
	// workEvery is how often a leader acts as one.
	workEvery = time.Millisecond
	// between is how long a candidate stays away after a term, so that another
	// one gets its turn, and after an error.
	between = 100 * time.Millisecond
)

// validLease is a lease that knows whether it is held, and is renewed without
// us.
type validLease interface {
	Valid() bool
	Deadline() time.Time
	Err() error
}

// errDeadline stands for a cause that the lease has yet to tell.
var errDeadline = errors.New("its deadline has passed")

// term is one lease in hand.
type term struct {
	name  int32
	lease load.Lease
	wrote atomic.Int64 // when it last acted as a leader
	until time.Time    // the last deadline that was seen
	over  chan struct{}
	once  sync.Once
	cause error // valid once over is closed; nil: it is to be released
}

func (t *term) end(cause error) {
	t.once.Do(func() {
		t.cause = cause
		close(t.over)
	})
}

// campaign acquires the lock, leads, and does so again, until ctx ends.
func (c *candidate) campaign(ctx context.Context, i int32, name string) {
	lock, err := c.locker.Lock(name, c.TTL)
	if err != nil {
		c.report(Report{Kind: Failed, Name: i, Cause: err.Error()})
		return
	}
	for ctx.Err() == nil {
		asked, lease, err := c.seek(ctx, lock)
		switch {
		case err == nil:
			c.lead(ctx, i, asked, lease)
		case ctx.Err() == nil:
			c.report(Report{Kind: Failed, Name: i, At: c.clock.Now(), Cause: err.Error()})
			// A lock of a session that has expired never works again.
			if fresh, err := c.locker.Lock(name, c.TTL); err == nil {
				lock = fresh
			}
		}
		proc.Sleep(ctx, between)
	}
}

// seek waits for a grant, or asks at every tick.
func (c *candidate) seek(ctx context.Context, lock load.Lock) (asked int64, _ load.Lease, err error) {
	if c.Tick == 0 {
		asked = c.clock.Now()
		lease, err := lock.Acquire(ctx)
		return asked, lease, err
	}
	trier, ok := lock.(load.Trier)
	if !ok {
		return 0, nil, errors.New("it cannot ask just once")
	}
	for {
		asked = c.clock.Now()
		lease, err := trier.TryAcquire(ctx)
		if !errors.Is(err, driver.ErrHeld) || !proc.Sleep(ctx, c.Tick) {
			return asked, lease, err
		}
	}
}

// lead holds the lease until it is lost, or until ctx or the term ends.
func (c *candidate) lead(ctx context.Context, i int32, asked int64, lease load.Lease) {
	now := c.clock.Now()
	t := &term{name: i, lease: lease, over: make(chan struct{})}
	t.wrote.Store(now)
	r := Report{Kind: Granted, Name: i, Token: lease.Token(), Asked: asked, At: now}
	v, valid := lease.(validLease)
	if valid {
		t.until = v.Deadline()
		r.FreeFrom, r.FreeBy = c.clock.Of(t.until), now+int64(c.TTL)
	} else if _, untimed := lease.(load.Untimed); !untimed {
		r.FreeFrom, r.FreeBy = asked+int64(c.TTL), now+int64(c.TTL)
	}
	c.mu.Lock()
	c.terms[i] = t
	c.mu.Unlock()
	c.report(r)
	if valid {
		select {
		case <-t.over:
		case <-ctx.Done():
			t.end(nil)
		}
	} else {
		c.renew(ctx, t)
	}
	c.mu.Lock()
	delete(c.terms, i)
	c.mu.Unlock()
	c.finish(ctx, t)
}

// renew renews at a third of the TTL what does not do so by itself. A renewal
// that fails is tried again until the TTL is over, unless it says that the lease
// is.
func (c *candidate) renew(ctx context.Context, t *term) {
	renewed := t.wrote.Load()
	wait := c.TTL / 3
	for {
		due := time.NewTimer(wait)
		select {
		case <-t.over:
			due.Stop()
			return
		case <-ctx.Done():
			due.Stop()
			t.end(nil)
			return
		case <-due.C:
		}
		sent := c.clock.Now()
		bounded, cancel := context.WithTimeout(ctx, c.TTL/3)
		err := t.lease.Renew(bounded)
		cancel()
		switch {
		case err == nil:
			renewed, wait = sent, c.TTL/3
			c.renewed(t.name, sent, c.clock.Now(), t.lease)
		case errors.Is(err, driver.ErrNotHeld), c.clock.Now() >= renewed+int64(c.TTL):
			t.end(fmt.Errorf("renewal: %w", err))
			return
		default:
			wait = min(between, c.TTL/3)
		}
	}
}

func (c *candidate) renewed(name int32, sent, got int64, lease load.Lease) {
	r := Report{Kind: Renewed, Name: name, Asked: sent, At: got}
	if _, untimed := lease.(load.Untimed); !untimed {
		r.FreeFrom, r.FreeBy = sent+int64(c.TTL), got+int64(c.TTL)
	}
	c.report(r)
}

// event reports the renewals of core.
func (c *candidate) event(e core.Event) {
	if e.Kind != core.EventRenewed {
		return
	}
	got := c.clock.Of(e.Time)
	c.renewed(int32(slices.Index(c.Names, e.Name)), got-int64(e.Took), got, nil)
}

// finish reports the end of a term, and releases the lease if it was not lost.
func (c *candidate) finish(ctx context.Context, t *term) {
	r := Report{Name: t.name, Token: t.lease.Token(), Wrote: t.wrote.Load()}
	if t.cause != nil {
		r.Kind, r.At, r.Cause = Lost, c.clock.Now(), t.cause.Error()
		c.report(r)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeBudget)
	defer cancel()
	r.Kind, r.Asked = Resigned, c.clock.Now()
	if err := t.lease.Release(ctx); err != nil {
		r.Cause = err.Error()
	}
	r.At = c.clock.Now()
	c.report(r)
}

// work acts as a leader of whatever is led, until ctx ends. The time of an
// action is read before the lease is asked: a process that is stopped between
// the two has acted before the stop.
func (c *candidate) work(ctx context.Context) {
	every := time.NewTicker(workEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		c.mu.Lock()
		terms := make([]*term, 0, len(c.terms))
		for _, t := range c.terms {
			terms = append(terms, t)
		}
		c.mu.Unlock()
		for _, t := range terms {
			now := c.clock.Now()
			if v, ok := t.lease.(validLease); ok && !v.Valid() {
				t.end(cmp.Or(v.Err(), errDeadline))
				continue
			}
			select {
			case <-t.over:
			default:
				t.wrote.Store(now)
				c.watch(t)
			}
		}
	}
}

// watch reports the renewals of a library that has our core in process, whose
// events nobody gets.
func (c *candidate) watch(t *term) {
	v, ok := t.lease.(validLease)
	if !ok || c.Baseline == "" {
		return
	}
	if until := v.Deadline(); until.After(t.until) {
		t.until = until
		c.renewed(t.name, c.clock.Of(until)-int64(c.TTL), c.clock.Now(), t.lease)
	}
}

// resign ends all terms.
func (c *candidate) resign() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.terms {
		t.end(nil)
	}
}
