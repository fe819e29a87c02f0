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
	// Stale reports whether a connection leads to a server that is used no more.
	Stale func(*Session) bool

	// A connection in use has a place in slots, or in spare, for withdrawals, or
	// in kills.
	slots, spare, kills chan struct{}

	mu      sync.Mutex
	idle    []*Session    // the one used last is at the end
	back    chan struct{} // closed when a connection comes back; nil when no caller waits for one
	busy    int           // connections in use
	changed time.Time     // the last answer to a statement that may change something
	failed  int           // dials in a row
	closed  bool
}

const (
	// spareConnections are for withdrawals, because the other connections may
	// wait for the lock to be withdrawn.
	spareConnections = 2
	// killConnections are for statements that end others.
	killConnections = 2
	// answersWithin is how long a connection in question may take to answer, and
	// changedLately how long an answer shows that the server serves: longer than a
	// statement waits for a row.
	answersWithin, changedLately = time.Second, 2 * time.Second
	// restsFor is the silence after which a connection is asked before it is
	// used, and answersSoon how long its caller waits for the answer. A firewall
	// or a balancer may have dropped the connection silently.
	restsFor, answersSoon = time.Second, 250 * time.Millisecond
	// redialFrom and redialTo are the pauses after dials that failed.
	redialFrom, redialTo = 5 * time.Millisecond, 100 * time.Millisecond
)

// NewPool returns a pool of at most limit connections, beside those for
// withdrawals and kills.
func NewPool(limit int, dial func() (*Session, error), spawn func(func()) bool) *Pool {
	return &Pool{
		Dial: dial, spawn: spawn, Stale: func(*Session) bool { return false },
		slots: make(chan struct{}, limit),
		spare: make(chan struct{}, spareConnections), kills: make(chan struct{}, killConnections),
	}
}

// Get returns a connection, after waiting for one below the limit.
// Its error wraps ErrNotSent.
func (p *Pool) Get(ctx context.Context) (*Session, error) { return p.within(ctx, p.slots) }

// GetSpare is Get for withdrawals.
func (p *Pool) GetSpare(ctx context.Context) (*Session, error) { return p.within(ctx, p.spare) }

// GetKill is Get for statements that end others.
func (p *Pool) GetKill(ctx context.Context) (*Session, error) { return p.within(ctx, p.kills) }

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

// answers asks s, which the pool has given out. It returns false unless s soon
// says that it would serve. The pool then takes s back, and keeps it if that
// answer comes late.
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

// putBack is Put for a connection without a place.
func (p *Pool) putBack(s *Session) {
	p.mu.Lock()
	p.busy--
	p.mu.Unlock()
	if back := p.keep(s); back != nil {
		close(back)
	}
}

// pop returns the connection used last that is usable. When all are in use it returns a
// channel that is closed when one comes back.
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

// connect makes a connection, unless another one comes back earlier. If its
// caller has another one by then, or its ctx has ended, the new one is for the
// next caller. Until then it keeps its place in slots.
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

// takeBack returns a connection that came back, if slots has a place for it,
// because the dial keeps the caller's place.
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

// returns gives the channel that is closed when a connection comes back. p.mu is held.
func (p *Pool) returns() <-chan struct{} {
	if p.back == nil {
		p.back = make(chan struct{})
	}
	return p.back
}

// dial dials, at a pace that slows down while that fails.
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

// Put takes a connection back. One that has failed is closed, and when it went
// silent, or its server serves no client now, those that are as old are asked.
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

// keep adds a connection to those that are idle, or closes it. It returns a
// channel to be closed when a caller can have it.
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

// Question asks the idle connections that were not heard of since whether they
// would serve, all at the same time, and keeps those that say so. Callers have
// others meanwhile: a connection that died without a word is not handed out after
// another that died with it. It returns a function that waits for the end, and
// reports how many are kept.
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

// Serves reports whether the server that the connections lead to serves: an idle
// one says so, or one in use has had an answer lately.
func (p *Pool) Serves() bool {
	if p.Question(time.Now())() > 0 {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy > 0 && time.Since(p.changed) < changedLately
}

// Warm dials one connection before it is needed. Its failure is no error,
// because the next caller that needs one finds out.
func (p *Pool) Warm(ctx context.Context) {
	if s, err := p.TryGet(ctx); err == nil && s != nil {
		p.Put(s)
	}
}

// Trim closes all but keep connections that were not used for a while.
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
// are closed when they come back.
func (p *Pool) Close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	for _, s := range idle {
		s.Close()
	}
}

// NotSent returns the error of a request that the server has not seen.
func NotSent(err error) error {
	if errors.Is(err, driver.ErrNotSent) || errors.Is(err, driver.ErrDenied) {
		return err
	}
	return fmt.Errorf("mysql: %w: %w: %w", driver.ErrUnavailable, driver.ErrNotSent, err)
}
