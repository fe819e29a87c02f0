package core

import (
	"context"
	"fmt"
)

// leasesOf is the key under which the contexts of leases carry their client's
// leases, so that an acquire that can only wait for itself is refused.
type leasesOf struct{ c *Client }

// holding is a lease, and the one under whose context it was acquired.
type holding struct {
	lease *Lease
	outer *holding
}

// holding returns ctx as a context that ends with l.
func (l *Lease) holding(ctx context.Context) context.Context {
	key := leasesOf{l.c}
	outer, _ := ctx.Value(key).(*holding)
	return context.WithValue(ctx, key, &holding{l, outer})
}

// refuseReentry returns an error when ctx ends with a lease of name. One without
// an end has the values of such a context, but may outlive the lease.
//
// Note: so may one with an end that was made by context.WithoutCancel, and nothing
// tells it from the others.
func (c *Client) refuseReentry(ctx context.Context, name string) error {
	h, _ := ctx.Value(leasesOf{c}).(*holding)
	for ; h != nil && ctx.Done() != nil; h = h.outer {
		if h.lease.lock.name == name && h.lease.Valid() {
			return fmt.Errorf("%w, and locks are not reentrant: %w", ErrReentrant, h.lease.refusal(nil))
		}
	}
	return nil
}

// callbackOf is the key under which the contexts of callbacks carry their
// client, so that Close can refuse to wait for the callback that calls it.
type callbackOf struct{ c *Client }

// inCallback returns ctx for a callback of c.
func (c *Client) inCallback(ctx context.Context) context.Context {
	return context.WithValue(ctx, callbackOf{c}, true)
}

// refuseCallback returns an error when ctx is that of a callback of c.
func (c *Client) refuseCallback(ctx context.Context) error {
	if ctx.Value(callbackOf{c}) == nil {
		return nil
	}
	return fmt.Errorf("%w: Close was called from a callback of Do, TryDo or Run, for which it waits", ErrInvalid)
}

// serve marks l as one under which a callback works: Close leaves it to the
// callback's end. It returns false when l is over already, or Close has begun
// to release it; then the callback must not start.
func (s *scheduler) serve(l *Lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.serving = l.alive.Load() && !l.leaving
	return l.serving
}

// served takes the mark away again.
func (s *scheduler) served(l *Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.serving = false
}

// leaving lists the live leases under which no callback works, and sees to it
// that none begins to.
func (s *scheduler) leaving() []*Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*Lease
	for l := range s.leases.all() {
		if !l.serving {
			l.leaving = true
			out = append(out, l)
		}
	}
	return out
}
