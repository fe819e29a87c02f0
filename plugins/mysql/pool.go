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
// on it, and places of their own for statements that free others.
type pool struct {
	// dial makes a connection. It runs in a goroutine of spawn, to its own end:
	// a dial that is cut in its handshake counts with the server as an error of
	// this machine, which it blocks for all its programs after some of them
	// (max_connect_errors).
	dial  func() (*session, error)
	spawn func(func()) bool

	// A connection in use has a place in slots, those for one operation in apart
	// too, so that they leave some to the lanes; or else one in spare, for
	// withdrawals, or in kills.
	slots, apart, spare, kills chan struct{}

	mu     sync.Mutex
	idle   []*session // the one used last is at the end
	closed bool
}

const (
	// spareConnections are for withdrawals: what is to be withdrawn may be what
	// the others wait for.
	spareConnections = 2
	// killConnections are for statements that end others.
	killConnections = 2
)

func newPool(limit int, dial func() (*session, error), spawn func(func()) bool) *pool {
	return &pool{
		dial: dial, spawn: spawn,
		slots: make(chan struct{}, limit), apart: make(chan struct{}, max(1, limit/2)),
		spare: make(chan struct{}, spareConnections), kills: make(chan struct{}, killConnections),
	}
}

// get returns a connection for a lane, after waiting for one below the limit.
// Its error wraps ErrNotSent.
func (p *pool) get(ctx context.Context) (*session, error) {
	if err := enter(ctx, p.slots); err != nil {
		return nil, err
	}
	return p.take(ctx, p.slots)
}

// getApart is get for an operation that shares its statement with no other.
func (p *pool) getApart(ctx context.Context) (*session, error) {
	if err := enter(ctx, p.apart); err != nil {
		return nil, err
	}
	s, err := p.get(ctx)
	if err != nil {
		<-p.apart
		return nil, err
	}
	s.apart = p.apart
	return s, nil
}

// getSpare is get for withdrawals.
func (p *pool) getSpare(ctx context.Context) (*session, error) {
	if err := enter(ctx, p.spare); err != nil {
		return nil, err
	}
	return p.take(ctx, p.spare)
}

// getKill is get for statements that end others.
func (p *pool) getKill(ctx context.Context) (*session, error) {
	if err := enter(ctx, p.kills); err != nil {
		return nil, err
	}
	return p.take(ctx, p.kills)
}

func enter(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return notSent(fmt.Errorf("all %d connections are busy: %w", cap(slots), ctx.Err()))
	}
}

// tryGet is get for callers that have something else to do when all
// connections are busy: it then returns nil and no error.
func (p *pool) tryGet(ctx context.Context) (*session, error) {
	select {
	case p.slots <- struct{}{}:
		return p.take(ctx, p.slots)
	default:
		return nil, nil
	}
}

// ready reports whether there is a connection that need not be made.
func (p *pool) ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle) > 0
}

// take returns a connection that has the caller's place in slots.
func (p *pool) take(ctx context.Context, slots chan struct{}) (*session, error) {
	for {
		s, err := p.pop()
		if err != nil {
			<-slots
			return nil, err
		}
		if s == nil {
			return p.connect(ctx, slots)
		}
		if s.usable(ctx) {
			s.slots = slots
			return s, nil
		}
		s.close()
	}
}

// pop returns the connection used last, nil when all are in use.
func (p *pool) pop() (*session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, driver.ErrClosed
	}
	n := len(p.idle)
	if n == 0 {
		return nil, nil
	}
	s := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return s, nil
}

// connect makes a connection. When ctx ends before it is made, the next caller
// finds it in the pool; until then it keeps its place in slots.
func (p *pool) connect(ctx context.Context, slots chan struct{}) (*session, error) {
	type result struct {
		s   *session
		err error
	}
	made, gone := make(chan result), make(chan struct{})
	started := ctx.Err() == nil && p.spawn(func() {
		s, err := p.dial()
		if err != nil {
			<-slots
		} else {
			s.slots = slots
		}
		select {
		case made <- result{s, err}:
		case <-gone:
			if err == nil {
				p.put(s)
			}
		}
	})
	if !started {
		<-slots
		if err := ctx.Err(); err != nil {
			return nil, notSent(err)
		}
		return nil, driver.ErrClosed
	}
	select {
	case r := <-made:
		return r.s, r.err
	case <-ctx.Done():
		close(gone)
		return nil, notSent(fmt.Errorf("while connecting: %w", ctx.Err()))
	}
}

// put takes a connection back. One that has failed is closed.
func (p *pool) put(s *session) {
	keep := !s.broken
	s.lastUsed = time.Now()
	slots, apart := s.slots, s.apart
	s.slots, s.apart = nil, nil
	p.mu.Lock()
	if keep = keep && !p.closed && len(p.idle) < cap(p.slots)+spareConnections; keep {
		p.idle = append(p.idle, s)
	}
	p.mu.Unlock()
	if !keep {
		s.close()
	}
	<-slots
	if apart != nil {
		<-apart
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
