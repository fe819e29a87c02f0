package mysql

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// pool keeps connections that are between two statements. database/sql would
// do, but for three things that this package needs: to know for certain that a
// statement was never sent, the id of a connection in order to kill what runs
// on it, and a way past the cap for statements that free others.
type pool struct {
	dial func(ctx context.Context) (*session, error)

	slots chan struct{} // one for each connection in ordinary use

	mu     sync.Mutex
	idle   []*session // the one used last is at the end
	closed bool
}

func newPool(limit int, dial func(ctx context.Context) (*session, error)) *pool {
	return &pool{dial: dial, slots: make(chan struct{}, limit)}
}

// get returns a connection, after waiting for one below the cap. Its error
// wraps ErrNotSent.
func (p *pool) get(ctx context.Context) (*session, error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, notSent(fmt.Errorf("all %d connections are busy: %w", cap(p.slots), ctx.Err()))
	}
	s, err := p.take(ctx)
	if err != nil {
		<-p.slots
		return nil, err
	}
	s.slot = true
	return s, nil
}

// tryGet is get for callers that have something else to do when all
// connections are busy: it then returns nil and no error.
func (p *pool) tryGet(ctx context.Context) (*session, error) {
	select {
	case p.slots <- struct{}{}:
	default:
		return nil, nil
	}
	s, err := p.take(ctx)
	if err != nil {
		<-p.slots
		return nil, err
	}
	s.slot = true
	return s, nil
}

// ready reports whether there is a connection that need not be made.
func (p *pool) ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle) > 0
}

// urgent returns a connection whatever the cap says. It is for statements that
// end others, which may be what the connections below the cap wait for.
func (p *pool) urgent(ctx context.Context) (*session, error) { return p.take(ctx) }

func (p *pool) take(ctx context.Context) (*session, error) {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, driver.ErrClosed
		}
		n := len(p.idle)
		if n == 0 {
			p.mu.Unlock()
			return p.dialOne(ctx)
		}
		s := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		if s.usable(ctx) {
			return s, nil
		}
		s.close()
	}
}

func (p *pool) dialOne(ctx context.Context) (*session, error) {
	if err := ctx.Err(); err != nil {
		return nil, notSent(err)
	}
	return p.dial(ctx)
}

// put takes a connection back. One that has failed is closed.
func (p *pool) put(s *session) {
	keep := !s.broken
	s.lastUsed = time.Now()
	slot := s.slot
	s.slot = false
	p.mu.Lock()
	if keep = keep && !p.closed && len(p.idle) < cap(p.slots); keep {
		p.idle = append(p.idle, s)
	}
	p.mu.Unlock()
	if slot {
		<-p.slots
	}
	if !keep {
		s.close()
	}
}

// warm dials one connection before it is needed. It is no error if it fails:
// whoever needs one finds out.
func (p *pool) warm(ctx context.Context) {
	if s, err := p.tryGet(ctx); err == nil && s != nil {
		p.put(s)
	}
}

// trim closes all but keep connections that were not used for a while.
func (p *pool) trim(age time.Duration, keep int) {
	p.mu.Lock()
	n := 0
	for n < len(p.idle)-keep && time.Since(p.idle[n].lastUsed) > age {
		n++
	}
	old := append([]*session(nil), p.idle[:n]...)
	p.idle = append([]*session(nil), p.idle[n:]...)
	p.mu.Unlock()
	for _, s := range old {
		s.close()
	}
}

// close closes what is idle and refuses further use. Connections in use are
// closed when they come back.
func (p *pool) close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	for _, s := range idle {
		s.close()
	}
}

func notSent(err error) error {
	if errors.Is(err, driver.ErrNotSent) || errors.Is(err, driver.ErrDenied) {
		return err
	}
	return fmt.Errorf("mysql: %w: %w: %w", driver.ErrUnavailable, driver.ErrNotSent, err)
}
