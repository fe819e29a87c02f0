package core

import (
	"errors"
	"fmt"

	"github.com/lockbench/lockbench/core/driver"
)

// watch listens to the backend's notices until the client has closed.
func (c *Client) watch() {
	pause := backoff{from: retryFrom, to: retryTo}
	for {
		err := c.b.Watch(c.work, func(n driver.Notice) {
			pause.reset()
			c.notice(n)
		})
		if c.work.Err() != nil || final(err) || !sleep(c.work, pause.next()) {
			return
		}
	}
}

func (c *Client) notice(n driver.Notice) {
	switch n.Kind {
	case driver.NoticeLost:
		c.sched.revoked(n)
	case driver.NoticeDown:
		if n.Plugin {
			c.events.add(Event{Kind: EventPluginDown, Err: n.Err})
		}
		c.sched.down(n)
	case driver.NoticeUp:
		if n.Plugin {
			c.events.add(Event{Kind: EventPluginUp})
		}
		c.sched.up()
	}
}

// down makes every lease suspect, or lost when the plugin took them with it.
func (s *scheduler) down(n driver.Notice) {
	why := n.Err
	if why == nil {
		why = fmt.Errorf("%w: it went down", ErrUnavailable)
	}
	died := n.Plugin && !s.c.survives
	s.mu.Lock()
	if died {
		s.epoch.Add(1)
	}
	var ended []*Lease
	for l := range s.leases.all() {
		if died {
			ended = append(ended, l)
			continue
		}
		if !l.lock.opts.NoRenew { // it depends on no answer
			s.suspect(l, why)
		}
	}
	for _, l := range ended {
		s.finish(l, Lost, because(ErrPluginDied, n.Err))
	}
	s.mu.Unlock()
	s.notify(ended)
}

// up renews every lease at once: it may have been lost meanwhile, and a new
// plugin process has yet to learn what this host holds (L8).
func (s *scheduler) up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.c.clock.now()
	for l := range s.leases.all() {
		if l.lock.opts.NoRenew {
			continue
		}
		l.due, l.again = now, true
		l.plan()
	}
	s.leases.reorder()
	s.rouse(now)
}

// revoked loses the lease that the backend says is gone.
func (s *scheduler) revoked(n driver.Notice) {
	s.loseGrant(n.Name, n.Token, func(l *Lease) error {
		switch {
		case l.owner != n.Owner:
			return nil
		case errors.Is(n.Err, ErrNotHeld):
			return s.verdict(l, n.Err, s.c.clock.now())
		}
		return because(ErrRevoked, n.Err)
	})
}

// loseGrant ends the lease that this host has of the grant of token, whichever
// it is by now, for the cause that is found under the mutex; nil is none.
func (s *scheduler) loseGrant(name string, token uint64, find func(*Lease) error) {
	s.mu.Lock()
	l := s.c.queues.holder(name)
	var cause error
	if l != nil && l.alive.Load() && GrantNumber(l.token) == GrantNumber(token) {
		cause = find(l)
	}
	if cause != nil {
		s.finish(l, Lost, cause)
	}
	s.mu.Unlock()
	if cause != nil {
		s.notify([]*Lease{l})
	}
}

// notHeld records what an answer that wraps ErrNotHeld says about l, or about
// the lease that it was handed on to. A store that has lost its data may mint a
// token again, so the owner says which grant it is.
func (c *Client) notHeld(l *Lease, err error) {
	if !errors.Is(err, ErrNotHeld) {
		return
	}
	c.sched.loseGrant(l.lock.name, l.token, func(now *Lease) error {
		if now.owner != l.owner {
			return nil
		}
		return c.sched.verdict(now, err, c.clock.now())
	})
}
