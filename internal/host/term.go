package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/record"
)

// Campaign is what a candidate wants.
type Campaign struct {
	// Names are the locks: whoever holds one is its leader.
	Names []string
	TTL   time.Duration
	// Tick is how often a candidate asks; 0: it waits until it is woken.
	Tick time.Duration
}

// Term is what a candidate knows of one of its terms, or of an acquire that has
// failed. Its Ended is when it last acted as a leader.
type Term struct {
	record.Attempt
	// Sent is when the last request was sent that the lease has its time from.
	Sent int64
	// ExpiresFrom and ExpiresBy bound the time at which the store lets the lease
	// expire, unless it is renewed; 0 where that is not known.
	ExpiresFrom, ExpiresBy int64
	// Cause is why it was lost, or could not be acquired or released.
	Cause string
}

// Campaign makes the host a candidate: it campaigns for the locks, works while it
// leads, and campaigns again after every term, until it ends. What is known of a
// term goes to on whenever that changes, one at a time; the name and the time of
// the grant identify it.
func (p *Process) Campaign(c Campaign, on func(Term)) error {
	p.mu.Lock()
	p.on = on
	p.mu.Unlock()
	return p.Send(order{Op: opCampaign, Campaign: &c})
}

// Resign lets a candidate release what it leads; it campaigns again after a
// moment.
func (p *Process) Resign(ctx context.Context) error {
	_, err := p.ask(ctx, order{Op: opResign})
	return err
}

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

// errDeadline stands for a cause that the lease has yet to tell, errResigned ends
// a term that is not lost.
var (
	errDeadline = errors.New("its deadline has passed")
	errResigned = errors.New("it has resigned")
)

// term is one lease in hand.
type term struct {
	lease load.Lease
	ttl   time.Duration
	until time.Time // the last deadline that was seen
	end   context.CancelCauseFunc
	wrote atomic.Int64 // when it last acted as a leader

	parent *proc.Parent
	mu     sync.Mutex
	state  Term
}

// change changes what is known of the term, and tells it.
func (t *term) change(f func(*Term)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.state)
	t.parent.Send(line{Term: &t.state})
}

func (t *term) renewed(sent, got int64) {
	t.change(func(s *Term) {
		s.Sent = sent
		if _, untimed := t.lease.(load.Untimed); !untimed {
			s.ExpiresFrom, s.ExpiresBy = sent+int64(t.ttl), got+int64(t.ttl)
		}
	})
}

// campaign campaigns for all locks, until ctx ends.
func (a *agent) campaign(ctx context.Context, o order) line {
	var work sync.WaitGroup
	work.Go(func() { a.lead(ctx) })
	for i, name := range o.Campaign.Names {
		work.Go(func() { a.campaignFor(ctx, *o.Campaign, int32(i), name) })
	}
	work.Wait()
	return line{}
}

// campaignFor acquires the lock, holds it, and does so again, until ctx ends.
func (a *agent) campaignFor(ctx context.Context, c Campaign, i int32, name string) {
	failed := func(err error) {
		now := a.clock.Now()
		a.parent.Send(line{Term: &Term{
			Attempt: record.Attempt{Name: i, Asked: now, Answered: now, Outcome: record.Failed}, Cause: err.Error(),
		}})
	}
	lock, err := a.locker.Lock(name, c.TTL)
	if err != nil {
		failed(err)
		return
	}
	for ctx.Err() == nil {
		asked, lease, err := a.seek(ctx, lock, c.Tick)
		switch {
		case err == nil:
			a.hold(ctx, name, a.newTerm(i, c.TTL, asked, lease))
		case ctx.Err() == nil:
			failed(err)
			// A lock of a session that has expired never works again.
			if fresh, err := a.locker.Lock(name, c.TTL); err == nil {
				lock = fresh
			}
		}
		proc.Sleep(ctx, between)
	}
}

// seek waits for a grant, or asks at every tick.
func (a *agent) seek(ctx context.Context, lock load.Lock, tick time.Duration) (asked int64, _ load.Lease, err error) {
	if tick == 0 {
		asked = a.clock.Now()
		lease, err := lock.Acquire(ctx)
		return asked, lease, err
	}
	trier, ok := lock.(load.Trier)
	if !ok {
		return 0, nil, errors.New("it cannot ask just once")
	}
	for {
		asked = a.clock.Now()
		lease, err := trier.TryAcquire(ctx)
		if !errors.Is(err, driver.ErrHeld) || !proc.Sleep(ctx, tick) {
			return asked, lease, err
		}
	}
}

// newTerm is that of a lease which was granted just now.
func (a *agent) newTerm(i int32, ttl time.Duration, asked int64, lease load.Lease) *term {
	now := a.clock.Now()
	t := &term{lease: lease, ttl: ttl, parent: a.parent, state: Term{
		Attempt: record.Attempt{Name: i, Asked: asked, Answered: now, Token: lease.Token(), Outcome: record.Granted}, Sent: asked,
	}}
	t.wrote.Store(now)
	if v, ok := lease.(validLease); ok {
		t.until = v.Deadline()
		t.state.ExpiresFrom, t.state.ExpiresBy = a.clock.Of(t.until), now+int64(ttl)
	} else if _, untimed := lease.(load.Untimed); !untimed {
		t.state.ExpiresFrom, t.state.ExpiresBy = asked+int64(ttl), now+int64(ttl)
	}
	return t
}

// hold holds a lease until it is lost, or until ctx or the term ends.
func (a *agent) hold(ctx context.Context, name string, t *term) {
	led, end := context.WithCancelCause(ctx)
	defer end(nil)
	t.end = end
	t.change(func(*Term) {})
	a.mu.Lock()
	a.terms[name] = t
	a.mu.Unlock()
	a.keep(led, t)
	a.mu.Lock()
	delete(a.terms, name)
	a.mu.Unlock()
	if cause := context.Cause(led); cause != errResigned && cause != context.Canceled {
		t.change(func(s *Term) {
			s.Ended, s.Done, s.End, s.Cause = t.wrote.Load(), a.clock.Now(), record.EndLost, cause.Error()
		})
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeBudget)
	defer cancel()
	sent := a.clock.Now()
	err := t.lease.Release(ctx)
	t.change(func(s *Term) {
		s.Ended, s.Done, s.End = sent, a.clock.Now(), record.EndReleased
		if err != nil {
			s.End, s.Cause = record.EndReleaseFailed, err.Error()
		}
	})
}

// keep waits for the end of ctx, which is that of a term, and renews at a third of
// the TTL what does not do so by itself. A renewal that fails is tried again until
// the TTL is over, unless it says that the lease is.
func (a *agent) keep(ctx context.Context, t *term) {
	_, itself := t.lease.(validLease)
	renewed, wait := t.state.Answered, t.ttl/3
	for {
		var due <-chan time.Time
		if !itself {
			due = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-due:
		}
		sent := a.clock.Now()
		bounded, cancel := context.WithTimeout(ctx, t.ttl/3)
		err := t.lease.Renew(bounded)
		cancel()
		switch {
		case err == nil:
			renewed, wait = sent, t.ttl/3
			t.renewed(sent, a.clock.Now())
		case errors.Is(err, driver.ErrNotHeld), a.clock.Now() >= renewed+int64(t.ttl):
			t.end(fmt.Errorf("renewal: %w", err))
		default:
			wait = min(between, t.ttl/3)
		}
	}
}

// event tells of the renewals of core.
func (a *agent) event(e core.Event) {
	if e.Kind != core.EventRenewed {
		return
	}
	a.mu.Lock()
	t := a.terms[e.Name]
	a.mu.Unlock()
	if t != nil && t.lease.Token() == e.Token {
		got := a.clock.Of(e.Time)
		t.renewed(got-int64(e.Took), got)
	}
}

// lead acts as a leader of whatever is led, until ctx ends. The time of an action
// is read before the lease is asked: a process that is stopped between the two has
// acted before the stop.
func (a *agent) lead(ctx context.Context) {
	every := time.NewTicker(workEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		a.mu.Lock()
		terms := slices.Collect(maps.Values(a.terms))
		a.mu.Unlock()
		for _, t := range terms {
			now := a.clock.Now()
			v, ok := t.lease.(validLease)
			if ok && !v.Valid() {
				t.end(cmp.Or(v.Err(), errDeadline))
				continue
			}
			t.wrote.Store(now)
			if ok && a.library {
				a.watch(t, v.Deadline())
			}
		}
	}
}

// watch tells of the renewals of a library that has our core in process, whose
// events nobody gets.
func (a *agent) watch(t *term, until time.Time) {
	if until.After(t.until) {
		t.until = until
		t.renewed(a.clock.Of(until)-int64(t.ttl), a.clock.Now())
	}
}

// resign ends all terms.
func (a *agent) resign(context.Context, order) line {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.terms {
		t.end(errResigned)
	}
	return line{}
}
