package conn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// Pool keeps connections that are between two statements. database/sql would
// do, but for three things that this package needs: to know for certain that a
// statement was never sent, the id of a connection in order to kill what runs
// on it, and places of their own for statements that free others.
type Pool struct {
	// Dial makes a connection. It runs in a goroutine of spawn, to its own end:
	// a dial that is cut in its handshake counts with the server as an error of
	// this machine, which it blocks for all its programs after some of them
	// (max_connect_errors).
	Dial  func() (*Session, error)
	spawn func(func()) bool

	// A connection in use has a place in slots, those for one operation in apart
	// too, so that they leave some to the batchers; or else one in spare, for
	// withdrawals, or in kills.
	slots, apart, spare, kills chan struct{}

	mu     sync.Mutex
	idle   []*Session // the one used last is at the end
	closed bool
}

const (
	// spareConnections are for withdrawals: what is to be withdrawn may be what
	// the others wait for.
	spareConnections = 2
	// killConnections are for statements that end others.
	killConnections = 2
)

// NewPool returns a pool of at most limit connections, beside those for
// withdrawals and kills.
func NewPool(limit int, dial func() (*Session, error), spawn func(func()) bool) *Pool {
	return &Pool{
		Dial: dial, spawn: spawn,
		slots: make(chan struct{}, limit), apart: make(chan struct{}, max(1, limit/2)),
		spare: make(chan struct{}, spareConnections), kills: make(chan struct{}, killConnections),
	}
}

// Get returns a connection for a batcher, after waiting for one below the limit.
// Its error wraps ErrNotSent.
func (p *Pool) Get(ctx context.Context) (*Session, error) { return p.within(ctx, p.slots) }

// GetSpare is Get for withdrawals.
func (p *Pool) GetSpare(ctx context.Context) (*Session, error) { return p.within(ctx, p.spare) }

// GetKill is Get for statements that end others.
func (p *Pool) GetKill(ctx context.Context) (*Session, error) { return p.within(ctx, p.kills) }

// GetApart is Get for an operation that shares its statement with no other.
func (p *Pool) GetApart(ctx context.Context) (*Session, error) {
	if err := enter(ctx, p.apart); err != nil {
		return nil, err
	}
	s, err := p.Get(ctx)
	if err != nil {
		<-p.apart
		return nil, err
	}
	s.apart = p.apart
	return s, nil
}

// within returns a connection after waiting for a place in slots.
func (p *Pool) within(ctx context.Context, slots chan struct{}) (*Session, error) {
	if err := enter(ctx, slots); err != nil {
		return nil, err
	}
	return p.take(ctx, slots)
}

func enter(ctx context.Context, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return NotSent(fmt.Errorf("all %d connections are busy: %w", cap(slots), ctx.Err()))
	}
}

// TryGet is Get for callers that have something else to do when all
// connections are busy: it then returns nil and no error.
func (p *Pool) TryGet(ctx context.Context) (*Session, error) {
	select {
	case p.slots <- struct{}{}:
		return p.take(ctx, p.slots)
	default:
		return nil, nil
	}
}

// Ready reports whether there is a connection that need not be made.
func (p *Pool) Ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle) > 0
}

// take returns a connection that has the caller's place in slots.
func (p *Pool) take(ctx context.Context, slots chan struct{}) (*Session, error) {
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
		s.Close()
	}
}

// pop returns the connection used last, nil when all are in use.
func (p *Pool) pop() (*Session, error) {
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
func (p *Pool) connect(ctx context.Context, slots chan struct{}) (*Session, error) {
	type result struct {
		s   *Session
		err error
	}
	made, gone := make(chan result), make(chan struct{})
	started := ctx.Err() == nil && p.spawn(func() {
		s, err := p.Dial()
		if err != nil {
			<-slots
		} else {
			s.slots = slots
		}
		select {
		case made <- result{s, err}:
		case <-gone:
			if err == nil {
				p.Put(s)
			}
		}
	})
	if !started {
		<-slots
		if err := ctx.Err(); err != nil {
			return nil, NotSent(err)
		}
		return nil, driver.ErrClosed
	}
	select {
	case r := <-made:
		return r.s, r.err
	case <-ctx.Done():
		close(gone)
		return nil, NotSent(fmt.Errorf("while connecting: %w", ctx.Err()))
	}
}

// Put takes a connection back. One that has failed is closed.
func (p *Pool) Put(s *Session) {
	keep := !s.Broken
	s.lastUsed = time.Now()
	slots, apart := s.slots, s.apart
	s.slots, s.apart = nil, nil
	p.mu.Lock()
	if keep = keep && !p.closed && len(p.idle) < cap(p.slots)+spareConnections; keep {
		p.idle = append(p.idle, s)
	}
	p.mu.Unlock()
	if !keep {
		s.Close()
	}
	<-slots
	if apart != nil {
		<-apart
	}
}

// Warm dials one connection before it is needed. It is no error if it fails:
// whoever needs one finds out.
func (p *Pool) Warm(ctx context.Context) {
	if s, err := p.TryGet(ctx); err == nil && s != nil {
		p.Put(s)
	}
}

// Trim closes all but keep connections that were not used for a while.
func (p *Pool) Trim(age time.Duration, keep int) {
	p.mu.Lock()
	n := 0
	for n < len(p.idle)-keep && time.Since(p.idle[n].lastUsed) > age {
		n++
	}
	old := append([]*Session(nil), p.idle[:n]...)
	p.idle = append([]*Session(nil), p.idle[n:]...)
	p.mu.Unlock()
	for _, s := range old {
		s.Close()
	}
}

// Close closes what is idle and refuses further use. Connections in use are
// closed when they come back.
func (p *Pool) Close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	for _, s := range idle {
		s.Close()
	}
}

// NotSent is the error of a request that the server has not seen.
func NotSent(err error) error {
	if errors.Is(err, driver.ErrNotSent) || errors.Is(err, driver.ErrDenied) {
		return err
	}
	return fmt.Errorf("mysql: %w: %w: %w", driver.ErrUnavailable, driver.ErrNotSent, err)
}
