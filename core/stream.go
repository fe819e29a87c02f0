package core

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// streams are the driver's Observes under way, one for each name.
type streams struct {
	mu     sync.Mutex
	byName map[string]*stream
}

// stream is one Observe of the driver, for all observers of a name. It is run
// anew for an observer that joins later: the first change that one sees is the
// state of the store after it has asked (E3), not what was seen before.
type stream struct {
	c      *Client
	name   string
	cancel context.CancelFunc
	over   chan struct{} // closed when it has ended
	kick   chan struct{} // ends the pause after a failed run; 1 slot

	mu        sync.Mutex
	observers map[*observer]struct{}
	round     uint64             // number of the run under way
	wanted    uint64             // the first run that will do for every observer
	seen      bool               // the run has reported
	end       context.CancelFunc // of the run
}

// join adds o to the stream of name. It returns nil when the client closes.
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

// keep holds o in the stream until ctx, the client or the stream ends.
func (s *stream) keep(ctx context.Context, o *observer) {
	select {
	case <-ctx.Done():
	case <-s.c.lifetime.Done():
	case <-s.over:
	}
	s.leave(o)
}

// leave closes o. The last one to leave ends the stream.
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

// forget is called under the mutex.
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

// see takes a report of the driver.
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

// lose takes that the driver cannot see the store.
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

// pause waits before the next run, unless an observer has joined.
func (s *stream) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.kick:
	case <-ctx.Done():
	}
}
