package serve

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// entry is the state that the store may hold for one owner.
type entry struct {
	name, owner string
	// granted is false while the owner waits, is being granted, or has had an
	// acquire with an unknown outcome. Such an owner must be withdrawn.
	granted bool
	token   uint64 // of the grant
	ttl     time.Duration
	// keepUntil is the instant to which the lock must stay taken.
	keepUntil time.Time
	// until is the instant at which the store lets the grant expire, as far as we know.
	until time.Time
	// queued reports whether the owner has called Wait, and neither TryAcquire nor
	// Renew has succeeded since. A grant from the Wait counts only until the owner
	// asks again, because it may be over by then and the store may have made another.
	queued bool
}

// tracker is a backend that remembers the leases and waits of its host, to
// give them back when the host dies. It keeps nothing that the store does
// not have too (L8): a new process learns it from the renewals.
type tracker struct {
	driver.Backend

	mu       sync.Mutex
	dead     bool
	entries  map[string]*entry // by owner
	acquires int               // in flight
	sweepAt  int               // number of entries at which to drop expired ones
}

func newTracker(b driver.Backend) *tracker {
	return &tracker{Backend: b, entries: map[string]*entry{}, sweepAt: 1024}
}

// errHostDead refuses requests of a dead host that were still on their way.
var errHostDead = errors.Join(driver.ErrClosed, errors.New("the host is dead"))

// enter notes, before ops are sent, what the store may soon hold for their
// owners. The leases of a batch are spread over memory that has left the
// processor's caches since their last renewal. So enter does as little as
// possible for each beside looking it up.
func (t *tracker) enter(ops ...driver.Op) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead {
		return errHostDead
	}
	now := time.Now()
	for i := range ops {
		switch op := &ops[i]; op.Kind {
		case driver.OpAcquire:
			if e := t.entryOf(&op.Request, now); e.queued {
				e.granted, e.token = false, 0
			}
			t.acquires++
		case driver.OpRenew:
			t.entryOf(&op.Request, now).note(&op.Request, op.Token)
		}
	}
	return nil
}

// entryOf returns the entry of r's owner, whose request is about to be sent.
// The caller holds mu.
func (t *tracker) entryOf(r *driver.Request, now time.Time) *entry {
	e := t.entries[r.Owner]
	if e == nil {
		t.sweep()
		e = &entry{name: r.Name, owner: r.Owner}
		t.entries[r.Owner] = e
	}
	e.ttl, e.until = r.TTL, now.Add(r.TTL)
	return e
}

// enterWait is enter for a Wait.
func (t *tracker) enterWait(r driver.Request) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead {
		return errHostDead
	}
	e := t.entryOf(&r, time.Now())
	e.queued, e.granted, e.token = true, false, 0
	return nil
}

// woken notes the grant that a Wait for r has brought.
func (t *tracker) woken(r driver.Request, g driver.Grant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[r.Owner]; e != nil {
		e.note(&r, g.Token)
		e.queued, e.until = true, g.Sent.Add(g.For)
	}
}

// note records a grant or renewal that has just been asked for.
func (e *entry) note(r *driver.Request, token uint64) {
	e.granted, e.queued, e.token = true, false, token
	e.keepUntil = time.Time{}
	if r.Keep > 0 {
		e.keepUntil = time.Now().Add(r.Keep)
	}
}

// granted records the outcome of an acquire for r.
func (t *tracker) granted(r driver.Request, token uint64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.acquires--
	e := t.entries[r.Owner]
	if e == nil {
		return
	}
	switch {
	case err == nil:
		e.note(&r, token)
	case e.queued && errors.Is(err, driver.ErrHeld):
		// The owner is still in the store's queue.
	case refused(err) && !e.granted:
		delete(t.entries, r.Owner)
	}
}

// refused reports whether the store keeps nothing of a request that failed with err.
func refused(err error) bool {
	for _, sure := range []error{
		driver.ErrHeld, driver.ErrNotHeld, driver.ErrWithdrawn, driver.ErrInvalid, driver.ErrUnsupported, driver.ErrNotSent,
	} {
		if errors.Is(err, sure) {
			return true
		}
	}
	return false
}

// forget drops an owner that the store does not have any more.
func (t *tracker) forget(owner string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.entries, owner)
}

// ended forgets owner after a request that ended its lease or found none.
func (t *tracker) ended(owner string, err error) {
	if err == nil || errors.Is(err, driver.ErrNotHeld) || errors.Is(err, driver.ErrWithdrawn) {
		t.forget(owner)
	}
}

// sweep drops leases that expired unnoticed. They are few, because core
// renews or releases all leases that it knows. The caller holds mu.
func (t *tracker) sweep() {
	if len(t.entries) < t.sweepAt {
		return
	}
	longAgo := time.Now().Add(-time.Minute)
	for owner, e := range t.entries {
		if e.until.Before(longAgo) {
			delete(t.entries, owner)
		}
	}
	t.sweepAt = max(1024, 2*len(t.entries))
}

// TryAcquire implements driver.Lock.
func (t *tracker) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	if err := t.enter(driver.Op{Kind: driver.OpAcquire, Request: r}); err != nil {
		return 0, err
	}
	token, err := t.Backend.TryAcquire(ctx, r)
	t.granted(r, token, err)
	return token, err
}

// Renew implements driver.Lock.
func (t *tracker) Renew(ctx context.Context, r driver.Request) error {
	if err := t.enter(driver.Op{Kind: driver.OpRenew, Request: r}); err != nil {
		return err
	}
	err := t.Backend.Renew(ctx, r)
	if err != nil {
		t.ended(r.Owner, err)
	}
	return err
}

// Release implements driver.Lock.
func (t *tracker) Release(ctx context.Context, r driver.Request) error {
	err := t.Backend.Release(ctx, r)
	t.ended(r.Owner, err)
	return err
}

// Withdraw implements driver.Lock.
func (t *tracker) Withdraw(ctx context.Context, name, owner string) error {
	err := t.Backend.Withdraw(ctx, name, owner)
	t.ended(owner, err)
	return err
}

// Wait implements driver.Waiter.
func (t *tracker) Wait(ctx context.Context, r driver.Request, max time.Duration) (driver.Grant, error) {
	if err := t.enterWait(r); err != nil {
		return driver.Grant{}, err
	}
	g, err := t.Backend.(driver.Waiter).Wait(ctx, r, max)
	if g.Token != 0 {
		t.woken(r, g)
	}
	return g, err
}

// Properties implements driver.Backend. The session has more capabilities than the backend.
func (t *tracker) Properties() driver.Properties {
	p := t.Backend.Properties()
	p.Capabilities = append(slices.Clone(p.Capabilities), driver.CapWithdraw)
	return p
}

// Batch implements driver.Batcher.
func (t *tracker) Batch(ctx context.Context, ops []driver.Op) []driver.Result {
	if err := t.enter(ops...); err != nil {
		return wire.FailAll(len(ops), err)
	}
	results := t.Backend.(driver.Batcher).Batch(ctx, ops)
	for i, op := range ops {
		t.leaveOp(op, results[i])
	}
	return results
}

// Start implements driver.Starter. An operation that ends a lease needs no entry.
func (t *tracker) Start(ctx context.Context, op driver.Op, done func(driver.Result)) {
	if op.Kind == driver.OpAcquire || op.Kind == driver.OpRenew {
		if err := t.enter(op); err != nil {
			done(driver.Result{Err: err})
			return
		}
	}
	t.Backend.(driver.Starter).Start(ctx, op, func(r driver.Result) {
		t.leaveOp(op, r)
		done(r)
	})
}

// leaveOp notes the outcome of an operation.
func (t *tracker) leaveOp(op driver.Op, r driver.Result) {
	switch {
	case op.Kind == driver.OpAcquire:
		t.granted(op.Request, r.Token, r.Err)
	case op.Kind != driver.OpRenew || r.Err != nil:
		t.ended(op.Owner, r.Err)
	}
}

// Observe implements driver.Observer.
func (t *tracker) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	return driver.ObserverOf(t.Backend).Observe(ctx, name, emit)
}

// Notify implements driver.Notifier.
func (t *tracker) Notify(ctx context.Context, name string, emit func()) error {
	return t.Backend.(driver.Notifier).Notify(ctx, name, emit)
}

// Watch implements driver.Watcher.
func (t *tracker) Watch(ctx context.Context, emit func(driver.Notice)) error {
	return t.Backend.(driver.Watcher).Watch(ctx, emit)
}

// List implements driver.Admin.
func (t *tracker) List(ctx context.Context, prefix string, emit func(driver.Holder) bool) error {
	return t.Backend.(driver.Admin).List(ctx, prefix, emit)
}

// Break implements driver.Admin.
func (t *tracker) Break(ctx context.Context, name string, token uint64) error {
	return t.Backend.(driver.Admin).Break(ctx, name, token)
}
