package core

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// ChangeKind says what a [Change] is.
type ChangeKind int

// The kinds of changes.
const (
	Elected ChangeKind = iota + 1 // a leader with a new token
	Updated                       // the same leader published another value, or is seen again after a Stale
	Vacant                        // there is no leader
	Stale                         // the store cannot be reached; Leader is the last known leader
)

// String returns the kind in lower case.
func (k ChangeKind) String() string { return nameOf(changeNames, k) }

var changeNames = []string{Elected: "elected", Updated: "updated", Vacant: "vacant", Stale: "stale"}

// Change is a change of the leader, as an observer sees it.
type Change struct {
	Kind   ChangeKind
	Leader Holder    // zero for Vacant
	Since  time.Time // Stale: when the store was first found unreachable
	Err    error     // Stale: why the store cannot be reached
}

// Observe watches the election without being a candidate (E3). The first Change is the present
// state. A newer Change replaces a Change that is not read yet, so a slow reader gets only the
// latest Change. The kind of a Change says what differs from the Change that was read before it. A
// leader's token is never lower than an earlier leader's token. When the store cannot be reached,
// the reader gets a Change of kind Stale, and observing goes on.
//
// Observers of one name in a client share one stream, so together they cost
// the store as much as one observer.
//
// The channel is closed when ctx ends or the client closes. If the client is closed, or was made
// with invalid [Options], the channel yields one Stale Change with the error, and is closed.
func (e *Elector) Observe(ctx context.Context) <-chan Change {
	o := &observer{out: make(chan Change, 1)}
	if err := e.c.begin("observe", e.lock.name); err != nil {
		o.out <- Change{Kind: Stale, Since: time.Now(), Err: err}
		close(o.out)
		return o.out
	}
	defer e.c.end()
	switch s := e.c.streams.join(e.c, e.lock.name, o); {
	case s == nil:
		close(o.out)
	case !e.c.spawn(func() { s.leaveAfter(ctx, o) }):
		s.leave(o)
	}
	return o.out
}

// observer is one call of Observe. The mutex of the observer's stream guards these fields.
type observer struct {
	out  chan Change
	from uint64 // number of the first run that the stream begins after this observer has joined
	sent Change // the last change that was put into out
	read Change // the last change that is known to have been read

	highest uint64
	stale   bool
}

func (o *observer) see(h Holder) {
	if h.Token != 0 && h.Token < o.highest {
		return // older than a holder that was already reported
	}
	o.highest = max(o.highest, h.Token)
	o.stale = false
	o.put(Change{Leader: h})
}

func (o *observer) lose(err error) {
	if !o.stale {
		o.stale = true
		o.put(Change{Kind: Stale, Leader: o.sent.Leader, Since: time.Now(), Err: err})
	}
}

// put makes ch the newest change and removes the previous change if it is unread.
// If ch has no kind, put derives the kind from the last change that was read.
func (o *observer) put(ch Change) {
	select {
	case <-o.out: // the previous change is unread
	default:
		o.read = o.sent
	}
	if ch.Kind == 0 {
		ch.Kind = kindAfter(o.read, ch.Leader)
	}
	o.sent = ch
	if ch.Kind == 0 { // the reader has this state already
		o.sent = o.read
		return
	}
	o.out <- ch
}

func kindAfter(before Change, h Holder) ChangeKind {
	was := before.Leader
	same := was.Held() && was.Owner == h.Owner && was.Token == h.Token
	switch {
	case !h.Held() && before.Kind == Vacant:
		return 0
	case !h.Held():
		return Vacant
	case !same:
		return Elected
	case before.Kind == Stale || string(was.Value) != string(h.Value):
		return Updated
	}
	return 0
}

type streams struct {
	mu     sync.Mutex
	byName map[string]*stream
}

// stream runs the driver's Observe for all observers of a name. When another observer joins, the
// stream begins a new run, which calls Observe again. The first change that an observer receives
// must be a state that the store had after the observer joined (E3).
type stream struct {
	c      *Client
	name   string
	cancel context.CancelFunc
	over   chan struct{} // closed when the stream has ended
	kick   chan struct{} // ends the pause after a failed run; buffer of 1

	mu        sync.Mutex
	observers map[*observer]struct{}
	round     uint64             // number of the run under way
	wanted    uint64             // number of the run that the newest observer needs
	seen      bool               // the run has reported a holder
	end       context.CancelFunc // ends the run
}

// join adds o to the stream of the election called name. If the client closes, join returns nil.
func (ss *streams) join(c *Client, name string, o *observer) *stream {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s := ss.byName[name]
	if s == nil {
		s = &stream{c: c, name: name, over: make(chan struct{}), kick: make(chan struct{}, 1), observers: map[*observer]struct{}{}, end: func() {}}
		ctx, cancel := context.WithCancel(c.lifetime)
		s.cancel = cancel
		if !c.spawn(func() { s.run(ctx) }) {
			cancel()
			return nil
		}
		if ss.byName == nil {
			ss.byName = map[string]*stream{}
		}
		ss.byName[name] = s
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observers[o] = struct{}{}
	o.from, s.wanted = s.round+1, s.round+1
	if s.seen {
		s.end()
	}
	select {
	case s.kick <- struct{}{}:
	default:
	}
	return s
}

func (s *stream) leaveAfter(ctx context.Context, o *observer) {
	select {
	case <-ctx.Done():
	case <-s.c.lifetime.Done():
	case <-s.over:
	}
	s.leave(o)
}

func (s *stream) leave(o *observer) {
	ss := &s.c.streams
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.observers, o)
	close(o.out)
	if len(s.observers) == 0 {
		s.cancel()
		ss.forget(s)
	}
}

// The caller of forget must hold ss.mu.
func (ss *streams) forget(s *stream) {
	if ss.byName[s.name] == s {
		delete(ss.byName, s.name)
	}
}

func (s *stream) run(ctx context.Context) {
	defer func() {
		s.cancel()
		s.c.streams.mu.Lock()
		s.c.streams.forget(s)
		s.c.streams.mu.Unlock()
		close(s.over)
	}()
	retry := backoff{from: retryFrom, to: maxAsk}
	for {
		run, cancel := context.WithCancel(ctx)
		s.begin(cancel)
		err := s.c.b.Observe(run, s.name, func(h driver.Holder) {
			retry.reset()
			s.see(h)
		})
		anew := run.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil, errors.Is(err, ErrClosed):
			return
		case !anew:
			s.lose(err)
			s.pause(ctx, retry.next())
		}
	}
}

func (s *stream) begin(end context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.round++
	s.seen, s.end = false, end
}

func (s *stream) see(h driver.Holder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for o := range s.observers {
		if o.from <= s.round {
			o.see(h)
		}
	}
	if s.seen = true; s.wanted > s.round {
		s.end()
	}
}

func (s *stream) lose(err error) {
	if err == nil {
		return
	}
	err = s.c.wrap("observe", s.name, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	for o := range s.observers {
		if o.from <= s.round {
			o.lose(err)
		}
	}
}

// pause waits for the duration d before the stream's next run, or until another observer joins.
func (s *stream) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.kick:
	case <-ctx.Done():
	}
}
