package serve

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// entry records what the store may hold for one owner: a grant, or a place in the queue.
type entry struct {
	name, owner string
	// granted is false while the owner waits, while its acquire is under way, and after an acquire
	// with an unknown outcome. The plugin must withdraw such an owner instead of releasing a lease.
	granted bool
	token   uint64 // token of the grant
	ttl     time.Duration
	// keepUntil is the time before which a release must not free the lock (Request.Keep).
	keepUntil time.Time
	// until is the time at which the store ends the grant, as far as this process knows.
	until time.Time
	// queued means that the owner has called Wait, and that no TryAcquire or Renew has succeeded
	// since that call. If such an owner calls TryAcquire, the tracker forgets the grant that Wait
	// returned. That grant may have expired, and the store may have granted the lock again.
	queued bool
}

// tracker is a backend that remembers the leases and waiters of its host, to release them when the
// host dies. It has no state that the store lacks (rule L8). After a crash of the plugin, a new
// plugin process learns the leases from their renewals. The tracker has methods of driver.Lock,
// Waiter, Batcher and Starter.
type tracker struct {
	driver.Backend
	// Calls of these capabilities do not concern the tracker. If the backend lacks one, it is nil, but
	// Observer then polls.
	driver.Observer
	driver.Notifier
	driver.Watcher
	driver.Admin

	mu       sync.Mutex
	dead     bool
	entries  map[string]*entry // by owner
	acquires int               // number of acquires under way
	sweepAt  int               // number of entries at which sweep is called next
}

func newTracker(b driver.Backend) *tracker {
	t := &tracker{Backend: b, entries: map[string]*entry{}, sweepAt: 1024}
	t.Observer = driver.ObserverOf(b)
	t.Notifier, _ = b.(driver.Notifier)
	t.Watcher, _ = b.(driver.Watcher)
	t.Admin, _ = b.(driver.Admin)
	return t
}

var errHostDead = errors.Join(driver.ErrClosed, errors.New("the host is dead"))

// enter must be called before ops are sent to the store. It records what the store may soon hold
// for the owners in ops. Note: with many leases, the look-up of an entry is slow, because the entry
// is no longer in the CPU's caches. So enter does little else.
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

// entryOf returns the entry of the owner in r, and creates it if necessary. The entry's expiry
// counts from the parameter now, so call entryOf just before r is sent. The caller must hold mu.
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

// woken records the grant g that Wait has returned for the request r.
func (t *tracker) woken(r driver.Request, g driver.Grant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[r.Owner]; e != nil {
		e.note(&r, g.Token)
		e.queued, e.until = true, g.Sent.Add(g.For)
	}
}

// note records that the owner in r has a grant with this token, which r acquired or renewed.
func (e *entry) note(r *driver.Request, token uint64) {
	e.granted, e.queued, e.token = true, false, token
	e.keepUntil = time.Time{}
	if r.Keep > 0 {
		e.keepUntil = time.Now().Add(r.Keep)
	}
}

// granted records the outcome of the acquire request r.
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
	case e.queued && (errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrDenied)):
		// The store still has the owner in its queue, so the tracker keeps the entry.
	case refused(err) && !e.granted:
		delete(t.entries, r.Owner)
	}
}

// refused reports whether err means that the store has recorded nothing for the request.
func refused(err error) bool {
	sure := []error{
		driver.ErrHeld, driver.ErrNotHeld, driver.ErrWithdrawn, driver.ErrInvalid, driver.ErrUnsupported, driver.ErrNotSent,
		driver.ErrDenied, driver.ErrConfig,
	}
	return slices.ContainsFunc(sure, func(s error) bool { return errors.Is(err, s) })
}

func (t *tracker) forget(owner string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.entries, owner)
}

// ended forgets an owner if err (which may be nil) shows that the owner has no lease any more.
func (t *tracker) ended(owner string, err error) {
	if err == nil || errors.Is(err, driver.ErrNotHeld) || errors.Is(err, driver.ErrWithdrawn) {
		t.forget(owner)
	}
}

// sweep drops entries that expired over a minute ago, if there are at least sweepAt entries. Few
// leases expire, because package core renews or releases its leases. The caller must hold mu.
func (t *tracker) sweep() {
	if len(t.entries) < t.sweepAt {
		return
	}
	longAgo := time.Now().Add(-time.Minute)
	maps.DeleteFunc(t.entries, func(_ string, e *entry) bool { return e.until.Before(longAgo) })
	t.sweepAt = max(1024, 2*len(t.entries))
}

func (t *tracker) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	if err := t.enter(driver.Op{Kind: driver.OpAcquire, Request: r}); err != nil {
		return 0, err
	}
	token, err := t.Backend.TryAcquire(ctx, r)
	t.granted(r, token, err)
	return token, err
}

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

func (t *tracker) Release(ctx context.Context, r driver.Request) error {
	err := t.Backend.Release(ctx, r)
	t.ended(r.Owner, err)
	return err
}

func (t *tracker) Withdraw(ctx context.Context, name, owner string) error {
	err := t.Backend.Withdraw(ctx, name, owner)
	t.ended(owner, err)
	return err
}

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

func (t *tracker) Properties() driver.Properties {
	p := t.Backend.Properties()
	p.Capabilities = append(slices.Clone(p.Capabilities), driver.CapWithdraw)
	return p
}

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

func (t *tracker) leaveOp(op driver.Op, r driver.Result) {
	switch {
	case op.Kind == driver.OpAcquire:
		t.granted(op.Request, r.Token, r.Err)
	case op.Kind != driver.OpRenew || r.Err != nil:
		t.ended(op.Owner, r.Err)
	}
}
