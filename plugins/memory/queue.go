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
	wake         chan struct{} // closed to wake them; nil when none sleeps
}

func (e *entry) head() *place {
	if len(e.queue) == 0 {
		return nil
	}
	return e.queue[0]
}

func (e *entry) find(owner string) *place {
	for _, p := range e.queue {
		if p.owner == owner {
			return p
		}
	}
	return nil
}

func (e *entry) touch(owner string, now time.Time) {
	if p := e.find(owner); p != nil {
		p.touched = now
	}
}

// enter returns owner's place, at the end of the queue if it has none.
func (e *entry) enter(r driver.Request, now time.Time) *place {
	p := e.find(r.Owner)
	if p == nil {
		p = &place{owner: r.Owner, label: r.Label}
		e.queue = append(e.queue, p)
	}
	p.touched = now
	return p
}

// leave gives up owner's place; its sleeping calls return.
func (e *entry) leave(owner string) {
	p := e.find(owner)
	if p == nil {
		return
	}
	e.queue = slices.DeleteFunc(e.queue, func(q *place) bool { return q == p })
	p.rouse()
}

// wakeHead wakes the waiter whose turn it is, and it alone. One that does not
// sleep needs no wake-up: it finds the lock free when it asks or waits next.
func (e *entry) wakeHead(now time.Time) {
	if p := e.head(); p != nil && p.wake != nil {
		p.touched = now
		p.rouse()
	}
}

func (p *place) rouse() {
	if p.wake != nil {
		close(p.wake)
		p.wake = nil
	}
}

func (b *backend) Wait(ctx context.Context, r driver.Request, max time.Duration) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	p, wake, err := b.store.park(r)
	if err != nil || wake == nil {
		return err
	}
	defer b.store.unpark(p)
	timeout := time.NewTimer(max)
	defer timeout.Stop()
	select {
	case <-wake:
		return nil
	case <-timeout.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-b.done:
		return driver.ErrClosed
	}
}

// park enters r's owner into the queue and returns what will wake it; nil when
// it is its turn. Looking and going to sleep are one step, so that no release
// can fall between them.
func (s *Store) park(r driver.Request) (*place, chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.isWithdrawn(r.Name, r.Owner, now) {
		return nil, nil, driver.ErrWithdrawn
	}
	e := s.at(r.Name, now)
	p := e.enter(r, now)
	if e.grant == nil && e.head() == p {
		return p, nil, nil
	}
	if p.wake == nil {
		p.wake = make(chan struct{})
	}
	p.parked++
	return p, p.wake, nil
}

func (s *Store) unpark(p *place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.parked--
	p.touched = time.Now()
	if p.parked == 0 {
		p.wake = nil
	}
}
