package core

import (
	"container/heap"
	"errors"
	"fmt"

	"github.com/lockbench/lockbench/core/driver"
)

// watch listens to the backend's notices until the client has closed.
func (c *Client) watch() {
	pause := backoff{from: retryFrom, to: retryTo}
	for {
		err := c.watcher.Watch(c.work, func(n driver.Notice) {
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
	for _, l := range s.leases {
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
	s.told(ended)
}

// up renews every lease at once: it may have been lost meanwhile, and a new
// plugin process has yet to learn what this host holds (L8).
func (s *scheduler) up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.c.clock.now()
	for _, l := range s.leases {
		if l.lock.opts.NoRenew {
			continue
		}
		l.due, l.again = now, true
		l.plan()
	}
	heap.Init(&s.leases)
	s.rouse(now)
}

// revoked loses the lease that the backend says is gone.
func (s *scheduler) revoked(n driver.Notice) {
	l := s.c.queues.holder(n.Name)
	if l == nil || l.owner != n.Owner || l.token != n.Token {
		return
	}
	cause := because(ErrRevoked, n.Err)
	if errors.Is(n.Err, ErrNotHeld) {
		cause = s.verdictOf(l, n.Err)
	}
	s.lose(l, cause)
}

// verdictOf is verdict for an answer other than a renewal's.
func (s *scheduler) verdictOf(l *Lease, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verdict(l, err, s.c.clock.now())
}
