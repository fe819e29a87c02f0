package memory

import (
	"context"
	"slices"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// place is a waiter's place in the queue of one name.
type place struct {
	owner, label string
	touched      time.Time     // its last Wait or TryAcquire, or wake-up
	parked       int           // Wait calls that sleep
	wake         chan struct{} // closed to wake them
}

func (e *entry) head() *place {
	if len(e.queue) == 0 {
		return nil
	}
	return e.queue[0]
}

func (e *entry) find(owner string) *place {
	i := slices.IndexFunc(e.queue, func(p *place) bool { return p.owner == owner })
	if i < 0 {
		return nil
	}
	return e.queue[i]
}

// enter returns the place of r's owner, at the end of the queue if it has none.
func (e *entry) enter(r driver.Request, now time.Time) *place {
	p := e.find(r.Owner)
	if p == nil {
		p = &place{owner: r.Owner, label: r.Label, wake: make(chan struct{})}
		e.queue = append(e.queue, p)
	}
	p.touched = now
	return p
}

// leave gives up owner's place, if it has one; its sleeping calls return.
func (e *entry) leave(owner string) {
	if p := e.find(owner); p != nil {
		e.queue = slices.DeleteFunc(e.queue, func(q *place) bool { return q == p })
		close(p.wake)
	}
}

// wakeHead wakes the waiter whose turn it is, and it alone. One that does not
// sleep needs no wake-up: it finds the lock free when it asks or waits next.
func (e *entry) wakeHead(now time.Time) {
	if p := e.head(); p != nil && p.parked > 0 {
		p.touched = now
		close(p.wake)
		p.wake = make(chan struct{})
	}
}

// Wait looks and goes to sleep in one step, so that no release can fall between
// the two.
func (b *backend) Wait(ctx context.Context, r driver.Request, max time.Duration) (driver.Grant, error) {
	var p *place
	var wake <-chan struct{} // nil when it is its turn
	err := b.locked(ctx, r.Name, func(s *Store, e *entry, now time.Time) error {
		if s.withdrawn.Has(claim{r.Name, r.Owner}) {
			return driver.ErrWithdrawn
		}
		if p = e.enter(r, now); e.grant != nil || e.head() != p {
			p.parked++
			wake = p.wake
		}
		return nil
	})
	if err != nil || wake == nil {
		return driver.Grant{}, err
	}
	defer b.store.unpark(p)
	timeout := time.NewTimer(max)
	defer timeout.Stop()
	select {
	case <-wake:
		return driver.Grant{}, nil
	case <-timeout.C:
		return driver.Grant{}, nil
	case <-ctx.Done():
		return driver.Grant{}, ctx.Err()
	case <-b.background.Done():
		return driver.Grant{}, driver.ErrClosed
	}
}

func (s *Store) unpark(p *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.parked--
	p.touched = time.Now()
}
