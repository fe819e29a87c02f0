package memory

import (
	"context"
	"slices"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

type place struct {
	driver.Request
	touched time.Time     // when the owner last called Wait or TryAcquire
	parked  int           // the number of calls of Wait that are asleep
	left    chan struct{} // closed when the place is given up, with or without a grant
}

func (e *entry) find(owner string) *place {
	i := slices.IndexFunc(e.queue, func(p *place) bool { return p.Owner == owner })
	if i < 0 {
		return nil
	}
	return e.queue[i]
}

func (e *entry) enter(r driver.Request, now time.Time) *place {
	p := e.find(r.Owner)
	if p == nil {
		p = &place{left: make(chan struct{})}
		e.queue = append(e.queue, p)
	}
	r.Value = slices.Clone(r.Value)
	p.Request, p.touched = r, now
	return p
}

// leave gives up the owner's place, if there is one, so that the owner's calls of Wait return.
func (e *entry) leave(owner string) {
	if p := e.find(owner); p != nil {
		e.queue = slices.DeleteFunc(e.queue, func(q *place) bool { return q == p })
		close(p.left)
	}
}

// grantNext grants a free lock to its first waiter. A waiter in a call of Wait is alive, but a
// waiter between two calls may be dead. The grant of a dead waiter expires after firstSpan, and the
// next waiter gets the lock.
func (s *Store) grantNext(e *entry, now time.Time) {
	if e.grant != nil || len(e.queue) == 0 {
		return
	}
	r := e.queue[0].Request
	e.leave(r.Owner)
	r.Token = s.nextToken(now)
	s.set(e, &grant{Request: r, expires: now.Add(min(r.TTL, firstSpan)), made: now, unconfirmed: true})
}

// madeFor returns the grant that the store made to the owner in the queue and that the owner has
// not confirmed yet. If there is no such grant, madeFor returns the zero Grant.
func (e *entry) madeFor(owner string) driver.Grant {
	g := e.grant
	if g == nil || g.Owner != owner || !g.unconfirmed {
		return driver.Grant{}
	}
	return driver.Grant{Token: g.Token, Sent: g.made, For: g.expires.Sub(g.made)}
}

// Wait checks the lock and registers the waiter in one atomic step, so that it misses no release.
func (b *backend) Wait(ctx context.Context, r driver.Request, max time.Duration) (g driver.Grant, err error) {
	var p *place
	err = b.locked(ctx, r.Name, func(s *Store, e *entry, now time.Time) error {
		if s.withdrawn.Has(claim{r.Name, r.Owner}) {
			return driver.ErrWithdrawn
		}
		if g = e.madeFor(r.Owner); g.Token != 0 {
			return nil
		}
		p = e.enter(r, now)
		p.parked++
		s.grantNext(e, now)
		return nil
	})
	if err != nil || g.Token != 0 {
		return g, err
	}
	timeout := time.NewTimer(max)
	defer timeout.Stop()
	select {
	case <-p.left:
	case <-timeout.C:
	case <-ctx.Done():
		err = ctx.Err()
	case <-b.background.Done():
		err = driver.ErrClosed
	}
	err = b.store.do(r.Name, func(_ *Store, e *entry, now time.Time) error {
		p.parked--
		if p.touched = now; err == nil {
			g = e.madeFor(r.Owner)
		}
		return err
	})
	return g, err
}
