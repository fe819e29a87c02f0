package conn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// Pool keeps connections open between statements. This package cannot use database/sql, for three
// reasons. A caller must know for certain whether a statement was sent. A caller must know a
// connection's id to kill the connection's statement. And some connections must be reserved for
// statements that unblock other statements.
type Pool struct {
	// Dial makes a connection, in a goroutine that the spawn function starts. Dial is never
	// interrupted, because a server counts each aborted handshake as an error of this machine. After
	// max_connect_errors such errors, the server blocks all programs on the machine.
	Dial  func() (*Session, error)
	spawn func(func()) bool
	// Stale reports whether a connection leads to a server that is no longer used.
	Stale func(*Session) bool

	// A connection in use has a place in slots, in spare (for withdrawals), or in kills (for
	// statements that kill other statements).
	slots, spare, kills chan struct{}

	mu      sync.Mutex
	idle    []*Session    // the most recently used session is at the end
	back    chan struct{} // closed when a connection is put back; nil if no caller waits
	busy    int           // connections in use
	changed time.Time     // when a statement that may change something was last answered
	failed  int           // failed dials in a row
	closed  bool
}

const (
	// spareConnections are reserved for withdrawals, because all other
	// connections may wait for the lock that a withdrawal frees.
	spareConnections = 2
	// killConnections are reserved for statements that kill other statements.
	killConnections = 2
	// A server that is asked whether it serves requests must answer within answersWithin. After its
	// answer to a statement, it counts as serving requests for changedLately, which is longer than a
	// statement waits for a row.
	answersWithin, changedLately = time.Second, 2 * time.Second
	// A connection that was silent for longer than restsFor is checked before use, because a firewall
	// or a load balancer may have dropped it silently. The caller waits at most answersSoon for this
	// check.
	restsFor, answersSoon = time.Second, 250 * time.Millisecond
	// redialFrom and redialTo bound the pauses after failed dials.
	redialFrom, redialTo = 5 * time.Millisecond, 100 * time.Millisecond
)

// NewPool returns a pool of at most limit connections, plus the connections for withdrawals and
// kills.
func NewPool(limit int, dial func() (*Session, error), spawn func(func()) bool) *Pool {
	return &Pool{
		Dial: dial, spawn: spawn, Stale: func(*Session) bool { return false },
		slots: make(chan struct{}, limit),
		spare: make(chan struct{}, spareConnections), kills: make(chan struct{}, killConnections),
	}
}

// Get returns a connection. Get waits while all connections that the limit allows are in use. Its
// error wraps driver.ErrNotSent, or is driver.ErrClosed.
func (p *Pool) Get(ctx context.Context) (*Session, error) { return p.within(ctx, p.slots) }

// GetSpare is like Get, but uses the connections for withdrawals.
func (p *Pool) GetSpare(ctx context.Context) (*Session, error) { return p.within(ctx, p.spare) }

// GetKill is like Get, but uses the connections for statements that kill other statements.
func (p *Pool) GetKill(ctx context.Context) (*Session, error) { return p.within(ctx, p.kills) }

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

// TryGet is like Get, but if all connections are busy, it returns nil and no error at once.
func (p *Pool) TryGet(ctx context.Context) (*Session, error) {
	select {
	case p.slots <- struct{}{}:
		return p.take(ctx, p.slots)
	default:
		return nil, nil
	}
}

// Ready reports whether there is an idle connection.
func (p *Pool) Ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle) > 0
}

// take returns a connection. The caller's place in slots then belongs to the connection.
func (p *Pool) take(ctx context.Context, slots chan struct{}) (*Session, error) {
	s, back, err := p.pop()
	if s != nil && time.Since(s.heard) > restsFor && !p.answers(ctx, s) {
		p.Question(time.Now().Add(-restsFor))
		s, back, err = p.pop()
	}
	if err != nil {
		<-slots
		return nil, err
	}
	if s == nil {
		return p.connect(ctx, slots, back)
	}
	s.slots = slots
	return s, nil
}

// answers asks, over the session s, whether the server serves requests. It returns true only if the
// server says yes within answersSoon. If the result is false, the pool takes s back, and keeps s if
// the server says yes later.
func (p *Pool) answers(ctx context.Context, s *Session) bool {
	answered, gone := make(chan error), make(chan struct{})
	ends := time.NewTimer(answersSoon)
	defer ends.Stop()
	started := p.spawn(func() {
		bounded, cancel := context.WithTimeout(context.Background(), answersWithin)
		defer cancel()
		select {
		case answered <- s.Ask(bounded):
		case <-gone:
			p.putBack(s)
		}
	})
	if !started {
		p.putBack(s)
		return false
	}
	select {
	case err := <-answered:
		if err == nil {
			return true
		}
		p.putBack(s)
	case <-ends.C:
		close(gone)
	case <-ctx.Done():
		close(gone)
	}
	return false
}

// putBack is like Put, for a connection that has no place in slots.
func (p *Pool) putBack(s *Session) {
	p.mu.Lock()
	p.busy--
	p.mu.Unlock()
	if back := p.keep(s); back != nil {
		close(back)
	}
}

// pop returns the most recently used idle connection that still works. If there is none, it returns
// a channel that is closed when a connection is put back.
func (p *Pool) pop() (s *Session, back <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, driver.ErrClosed
	}
	for n := len(p.idle); n > 0; n = len(p.idle) {
		s, p.idle = p.idle[n-1], p.idle[:n-1]
		if !p.Stale(s) && s.usable() {
			p.busy++
			return s, nil, nil
		}
		s.Close()
	}
	return nil, p.returns(), nil
}

// connect dials a new connection. It returns this connection, or another connection that is put
// back earlier. If the caller does not get the new connection, a later caller gets it. Until the
// new connection is in the pool, it keeps the caller's place in slots.
func (p *Pool) connect(ctx context.Context, slots chan struct{}, back <-chan struct{}) (*Session, error) {
	type result struct {
		s   *Session
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
	for {
		select {
		case r := <-made:
			return r.s, r.err
		case <-back:
		case <-ctx.Done():
			close(gone)
			return nil, unanswered(fmt.Errorf("while connecting: %w", ctx.Err()))
		}
		s, next, err := p.takeBack(slots)
		if s != nil || err != nil {
			close(gone)
			return s, err
		}
		back = next
	}
}

// takeBack returns a connection that was put back, if slots has a free place. The connection needs
// this second place, because the dial keeps the caller's first place.
func (p *Pool) takeBack(slots chan struct{}) (s *Session, back <-chan struct{}, err error) {
	select {
	case slots <- struct{}{}:
	default:
		p.mu.Lock()
		defer p.mu.Unlock()
		return nil, p.returns(), nil
	}
	if s, back, err = p.pop(); s == nil {
		<-slots
		return nil, back, err
	}
	s.slots = slots
	return s, nil, nil
}

// The returns method gives the channel that is closed when a connection is put back. The caller
// holds mu.
func (p *Pool) returns() <-chan struct{} {
	if p.back == nil {
		p.back = make(chan struct{})
	}
	return p.back
}

func (p *Pool) dial() (*Session, error) {
	p.mu.Lock()
	failed := p.failed
	p.mu.Unlock()
	if failed > 0 {
		pause := min(redialFrom<<min(failed-1, 10), redialTo)
		time.Sleep(pause/2 + rand.N(pause/2))
	}
	s, err := p.Dial()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed++; err == nil {
		p.failed = 0
		p.busy++
	}
	return s, err
}

// Put takes the connection s back, and closes s if s has failed. If s got no answer, or its server
// serves no client, Put also tests the idle connections that got no answer after s.sent.
func (p *Pool) Put(s *Session) {
	slots := s.slots
	s.slots = nil
	if s.suspicious {
		p.Question(s.sent)
	}
	p.mu.Lock()
	p.busy--
	p.mu.Unlock()
	back := p.keep(s)
	<-slots
	if back != nil {
		close(back)
	}
}

// keep adds s to the idle connections, or closes s if s is broken or not needed. It returns the
// channel that keep's caller must close, or nil if no goroutine waits for a connection.
func (p *Pool) keep(s *Session) (back chan struct{}) {
	p.mu.Lock()
	if s.changed.After(p.changed) && !p.Stale(s) {
		p.changed = s.changed
	}
	keep := !s.Broken && !p.closed && !p.Stale(s) && len(p.idle) < cap(p.slots)+spareConnections
	if keep {
		p.idle = append(p.idle, s)
		back, p.back = p.back, nil
	}
	p.mu.Unlock()
	if !keep {
		s.Close()
	}
	return back
}

// Question tests in parallel all idle connections whose last answer came before the time in since.
// It keeps the connections that work. During the test, callers get other connections. So if one
// connection has died silently, no caller gets another connection that died with it. Question
// returns a function that waits for the end of the test and returns the number of kept connections.
func (p *Pool) Question(since time.Time) (kept func() int) {
	var old []*Session
	p.mu.Lock()
	p.idle = slices.DeleteFunc(p.idle, func(s *Session) bool {
		asked := s.heard.Before(since)
		if asked {
			old = append(old, s)
		}
		return asked
	})
	p.mu.Unlock()
	var all sync.WaitGroup
	var n atomic.Int64
	for _, s := range old {
		all.Add(1)
		started := p.spawn(func() {
			defer all.Done()
			ctx, cancel := context.WithTimeout(context.Background(), answersWithin)
			defer cancel()
			if s.Ask(ctx) == nil {
				n.Add(1)
			}
			if back := p.keep(s); back != nil {
				close(back)
			}
		})
		if !started {
			s.Close()
			all.Done()
		}
	}
	return func() int {
		all.Wait()
		return int(n.Load())
	}
}

// Serves reports whether the server serves requests. It asks the server over idle connections. If
// connections are busy, a recent answer to a statement other than SELECT also counts.
func (p *Pool) Serves() bool {
	if p.Question(time.Now())() > 0 {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy > 0 && time.Since(p.changed) < changedLately
}

// Warm dials one connection before it is needed. It ignores a failed dial,
// because the next caller that needs a connection gets the error.
func (p *Pool) Warm(ctx context.Context) {
	if s, err := p.TryGet(ctx); err == nil && s != nil {
		p.Put(s)
	}
}

// Trim closes connections that were idle for longer than age. The parameter keep is the number of
// idle connections that stay open in any case.
func (p *Pool) Trim(age time.Duration, keep int) {
	p.mu.Lock()
	n := 0
	for n < len(p.idle)-keep && time.Since(p.idle[n].heard) > age {
		n++
	}
	old := append([]*Session(nil), p.idle[:n]...)
	p.idle = append([]*Session(nil), p.idle[n:]...)
	p.mu.Unlock()
	for _, s := range old {
		s.Close()
	}
}

// Close closes the idle connections and refuses further use. Connections in use
// are closed when they are put back.
func (p *Pool) Close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	for _, s := range idle {
		s.Close()
	}
}

// NotSent returns the error for a request that was not sent because of err.
func NotSent(err error) error {
	if errors.Is(err, driver.ErrNotSent) || errors.Is(err, driver.ErrDenied) {
		return err
	}
	return fmt.Errorf("mysql: %w: %w: %w", driver.ErrUnavailable, driver.ErrNotSent, err)
}
