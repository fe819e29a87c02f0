package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/results"
)

// keptLease is a lease that is renewed without us and knows whether it is held.
type keptLease interface {
	tenure
	Done() <-chan struct{}
	Release(context.Context) error
}

// coreLease is one of core.
type coreLease interface {
	keptLease
	Owner() string
	Deadline() time.Time
}

// sentOf is when the request was sent that a lease has its time from, 0 where
// that is not known.
func (a *agent) sentOf(lease any, call *results.Call, ttl time.Duration) int64 {
	switch l := lease.(type) {
	case coreLease:
		return a.clock.Of(l.Deadline()) - int64(ttl)
	case load.Untimed:
		return 0
	}
	return call.SentNs
}

// follow has the renewals of a lease told of as they are confirmed, until leave is
// called. Those of a library with our core in it, whose events nobody gets, show in
// its deadline; those of another library are made here.
func (a *agent) follow(h *holding, of keptLease, ttl time.Duration) (leave func()) {
	lease, ok := of.(coreLease)
	switch {
	case !ok:
		a.renewing(of.(*kept), ttl, h)
		return func() {}
	case a.spec.Baseline != "":
		seen := lease.Deadline()
		h.watch = func() {
			if until := lease.Deadline(); until.After(seen) {
				seen = until
				h.renewed(a.clock.Of(until)-int64(ttl), a.clock.Now())
			}
		}
		return func() {}
	}
	id := leaseID{lease.Owner(), lease.Token()}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held[id] = h
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.held, id)
	}
}

// kept is the lease of a library that neither renews it nor knows whether it is
// held.
type kept struct {
	load.Lease
	done chan struct{}
	err  error // the reason for a loss; written before done is closed
	stop context.CancelFunc
	work sync.WaitGroup // renewals
}

func newKept(lease load.Lease) *kept {
	return &kept{Lease: lease, done: make(chan struct{}), stop: func() {}}
}

// renewing renews a lease at a third of the TTL until it is released or lost, and
// tells of that.
func (a *agent) renewing(k *kept, ttl time.Duration, h *holding) {
	var ctx context.Context
	ctx, k.stop = context.WithCancel(context.Background())
	k.work.Go(func() {
		if err := a.renew(ctx, k.Lease, ttl, h.renewed); err != nil {
			k.err = fmt.Errorf("renewal: %w", err)
			close(k.done)
		}
	})
}

// renew returns the error by which a lease was lost, nil when ctx ends. A
// renewal that fails is tried again until the TTL is over, unless its error says
// that the lease is.
func (a *agent) renew(ctx context.Context, lease load.Lease, ttl time.Duration, renewed func(sent, done int64)) error {
	confirmed, wait := a.clock.Now(), ttl/3
	for proc.Sleep(ctx, wait) {
		sent := a.clock.Now()
		bounded, cancel := context.WithTimeout(ctx, ttl/3)
		err := lease.Renew(bounded)
		cancel()
		switch {
		case err == nil:
			confirmed, wait = sent, ttl/3
			renewed(sent, a.clock.Now())
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, driver.ErrNotHeld), a.clock.Now() >= confirmed+int64(ttl):
			return err
		default:
			wait = min(retryEvery, ttl/3)
		}
	}
	return nil
}

// Valid reports whether the lease is not known to be lost.
func (k *kept) Valid() bool {
	select {
	case <-k.done:
		return false
	default:
		return true
	}
}

// Done is closed when the lease is known to be lost.
func (k *kept) Done() <-chan struct{} { return k.done }

// Err is the reason for a loss, nil without one.
func (k *kept) Err() error {
	if k.Valid() {
		return nil
	}
	return k.err
}

// Release gives the lease back, unless it was lost.
func (k *kept) Release(ctx context.Context) error {
	k.stop()
	k.work.Wait()
	if err := k.Err(); err != nil {
		return err
	}
	return k.Lease.Release(ctx)
}
