package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

const (
	// maxRenewers bounds the concurrent renewals of one batch if the backend cannot renew many
	// leases in one call.
	maxRenewers = 32
	minRetry    = 5 * time.Millisecond
	maxRetry    = 500 * time.Millisecond
)

type renewalBatch struct {
	leases  []*Lease
	left    time.Duration               // time until the first of the leases ends
	short   bool                        // all leases of the batch are short, see Lease.short
	healthy func(context.Context) error // the health check of the only lease, or nil
	done    chan struct{}

	// Guarded by the scheduler's mutex.
	asking bool // the health check was called and has not returned
	sent   bool // the requests were sent; a later hand-over replaces its old lease in leases
}

// The health check and the renewal may together take a third of the time until the first lease of
// the batch ends, so that a hung plugin is replaced before its leases end (L8). For short leases,
// they may take all of that time, because a new plugin would come too late.
func (s *scheduler) renew(ctx context.Context, f *renewalBatch) {
	defer close(f.done)
	budget := f.left / 3
	if f.short {
		budget = f.left
	}
	ctx, cancel := context.WithTimeout(ctx, max(budget, time.Millisecond))
	defer cancel()
	if err := s.examine(ctx, f); err != nil {
		l := f.leases[0]
		s.loseGrant(l.lock.name, l.token, func(now *Lease) error {
			if now != l { // l has ended or was handed over
				return nil
			}
			return err
		})
		return
	}
	if sent, reqs := s.send(f); len(reqs) > 0 {
		s.record(f, sent, s.c.renew(ctx, reqs))
	}
}

// send removes ended leases from the batch f, and returns renewal requests for the other leases.
func (s *scheduler) send(f *renewalBatch) (sent instant, reqs []driver.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.sent = true
	f.leases = slices.DeleteFunc(f.leases, func(l *Lease) bool { return !l.alive.Load() })
	sent = s.c.clock.early()
	for _, l := range f.leases {
		reqs = append(reqs, l.request(sent))
		l.expiresBy = max(l.expiresBy, sent.add(l.lock.opts.TTL)) // record() may move expiresBy again
	}
	return sent, reqs
}

func (s *scheduler) examine(ctx context.Context, f *renewalBatch) error {
	if f.healthy == nil {
		return nil
	}
	s.mark(f, true)
	err := f.healthy(ctx)
	s.mark(f, false)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnhealthy, err)
	}
	return nil
}

func (s *scheduler) mark(f *renewalBatch, asking bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.asking = asking
}

func (c *Client) renew(ctx context.Context, reqs []driver.Request) []error {
	errs := make([]error, len(reqs))
	if len(reqs) == 1 {
		errs[0] = c.b.Renew(ctx, reqs[0])
		return errs
	}
	if c.b.batcher != nil {
		c.renewBatch(ctx, reqs, errs)
		return errs
	}
	atOnce(maxRenewers, len(reqs), func(i int) { errs[i] = c.b.Renew(ctx, reqs[i]) })
	return errs
}

// atOnce calls f(0) to f(n-1), and makes at most as many calls at once as the parameter most says.
func atOnce(most, n int, f func(i int)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(most, n) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				f(int(i))
			}
		})
	}
	workers.Wait()
}

func (c *Client) renewBatch(ctx context.Context, reqs []driver.Request, errs []error) {
	ops := make([]driver.Op, len(reqs))
	for i, r := range reqs {
		ops[i] = driver.Op{Kind: driver.OpRenew, Request: r}
	}
	results := c.b.Batch(ctx, ops)
	for i := range errs {
		if i >= len(results) {
			errs[i] = fmt.Errorf("%w: %d results for %d operations", ErrUnavailable, len(results), len(ops))
			continue
		}
		errs[i] = results[i].Err
	}
}

// The record method applies the answers in errs to the leases of the batch f.
func (s *scheduler) record(f *renewalBatch, sent instant, errs []error) {
	s.mu.Lock()
	got := s.c.clock.now()
	var ended []*Lease
	for i, l := range f.leases {
		l.renewal = nil
		if !errors.Is(errs[i], ErrNotHeld) {
			l.expiresBy = max(l.expiresBy, got.add(l.lock.opts.TTL))
		}
		if !l.alive.Load() {
			continue
		}
		if cause := s.verdict(l, errs[i], got); cause != nil {
			s.finish(l, Lost, cause)
			ended = append(ended, l)
			continue
		}
		if errs[i] == nil {
			s.renewed(l, sent, got)
		} else {
			s.suspect(l, errs[i])
			l.due = got.add(min(max(l.endAt.sub(got)/8, minRetry), maxRetry))
		}
		if l.again {
			l.due = got
		}
		s.replan(l)
	}
	s.mu.Unlock()
	s.notify(ended)
}

// verdict returns the cause if the deadline or the answer err ends the lease l, and nil otherwise.
func (s *scheduler) verdict(l *Lease, err error, now instant) error {
	var notHeld *NotHeldError
	switch {
	case l.endAt <= now:
		return l.overdue(now)
	case errors.As(err, &notHeld) && notHeld.Holder.Held() && notHeld.Holder.Owner != l.owner:
		return because(ErrTaken, err)
	case errors.Is(err, ErrNotHeld):
		return ErrRevoked
	case errors.Is(err, ErrPluginDied) && !s.c.survives:
		return ErrPluginDied
	}
	return nil
}

// The renewed method plans the next renewal of the lease l one interval after the planned time of
// the last renewal, so that delays do not add up. For a short lease, the event has no Slack (time
// left), because the lease was granted for less than the TTL.
func (s *scheduler) renewed(l *Lease, sent, got instant) {
	ev := l.event(EventRenewed, got.sub(sent), nil)
	if !l.short() {
		ev.Slack = l.endAt.sub(got)
	}
	l.extend(l.lock.opts.TTL, sent, got)
	s.c.took(got.sub(sent))
	l.state, l.suspectErr = Held, nil
	l.due = max(l.due.add(l.lock.opts.RenewEvery), got)
	if l.lock.opts.NoRenew {
		l.due = never
	}
	s.c.events.add(ev)
}

// suspect records that the state of the lease l in the store is unknown until a renewal succeeds.
func (s *scheduler) suspect(l *Lease, err error) {
	l.suspectErr = err
	if l.state == Held {
		l.state = Suspect
		s.c.events.add(l.event(EventSuspect, 0, err))
	}
}

// watch receives the backend's notices until the client closes or Watch fails for good.
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

// down ends all leases if they died with the plugin. Otherwise, it makes renewable leases suspect.
func (s *scheduler) down(n driver.Notice) {
	why := n.Err
	if why == nil {
		why = fmt.Errorf("%w: it went down", ErrUnavailable)
	}
	died := n.Plugin && !s.c.survives
	s.mu.Lock()
	if n.Plugin {
		s.epoch.Add(1)
	}
	var ended []*Lease
	for l := range s.leases.all() {
		if died {
			ended = append(ended, l)
			continue
		}
		if !l.lock.opts.NoRenew { // a lease with NoRenew depends on no renewal
			s.suspect(l, why)
		}
	}
	for _, l := range ended {
		s.finish(l, Lost, because(ErrPluginDied, n.Err))
	}
	s.mu.Unlock()
	s.notify(ended)
}

// The up method is called when the plugin or store is up again. It renews all leases without
// NoRenew at once, because some may be lost and a new plugin process must learn of the others (L8).
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

// loseGrant calls the function find with this host's present lease of the named
// lock, if the lease and the token belong to the same grant. If find returns a
// cause, loseGrant ends the lease as lost. s.mu is held while find runs.
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

// If err wraps ErrNotHeld, notHeld ends the lease l or the lease that followed l by a hand-over.
// It compares owners too, because a store that has lost its data may give out a token again.
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
