package frame

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/internal/cancellation"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
	"github.com/lockbench/lockbench/internal/rawio"
)

// session is the plugin's end of the connections of one host.
type session struct {
	conn    *net.UnixConn // the connection of the requests
	in      *rawio.Reader
	backend driver.Backend
	waiter  driver.Waiter // nil if undeclared, as batcher and starter
	batcher driver.Batcher
	starter driver.Starter // if nil, every request needs a worker
	redact  *wire.Redactor
	out     outbox

	// Guarded by out.mu.
	requests map[uint64]*request
	under    load // requests under way
	idle     []*worker
	over     bool
	timer    *time.Timer // cancels requests at their deadlines
	next     time.Time   // when the timer fires; zero if it is not set

	workers sync.WaitGroup
	started sync.WaitGroup // counts unfinished requests of the starter
	flusher sync.WaitGroup
	queued  chan struct{} // wakes the flusher
}

// request is one request under way. It is a context.Context. The context ends when the
// host cancels the request, when its deadline passes, or when the connection ends.
type request struct {
	cancellation.Signal
	deadline time.Time // zero if there is none
	session  *session
	id       uint64
	message
}

// Deadline implements context.Context.
func (r *request) Deadline() (time.Time, bool) { return r.deadline, !r.deadline.IsZero() }

// Value implements context.Context.
func (*request) Value(any) any { return nil }

// errBusy is the answer to a request while maxUnderWay requests of its kind are under way. A
// request that the host gave up still counts while the backend works on it.
var errBusy = fmt.Errorf("%w (%w): too many requests at once", driver.ErrUnavailable, driver.ErrNotSent)

// newSession makes a session that owns the connections. If it fails, the caller still owns them.
func newSession(requests, replies *net.UnixConn, b driver.Backend, redact *wire.Redactor) (*session, error) {
	s := &session{
		conn: requests, redact: redact, requests: map[uint64]*request{}, queued: make(chan struct{}, 1),
		backend: b, waiter: driver.WaiterOf(b), batcher: driver.BatcherOf(b), starter: driver.StarterOf(b),
	}
	var err error
	if s.in, err = rawio.NewReader(requests); err != nil {
		return nil, err
	}
	return s, s.out.init(replies, func(error) { requests.Close() })
}

// serve answers requests until the connection ends. It returns after the last request has
// ended. The error is the reason for the connection's end, or nil if the host or Listener.Close has
// closed it.
func (s *session) serve() error {
	s.timer = time.AfterFunc(math.MaxInt64, s.passDeadlines)
	s.flusher.Go(s.flush)
	err := s.read()
	s.out.stop(err)
	s.close()
	s.end()
	s.workers.Wait()
	s.started.Wait()
	close(s.queued)
	s.flusher.Wait()
	s.out.drains.Wait()
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (s *session) close() {
	s.conn.Close()
	s.out.end.Close()
}

func (s *session) end() {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	s.over = true
	s.timer.Stop()
	for _, w := range s.idle {
		close(w.next)
	}
	for _, r := range s.requests {
		r.Cancel(context.Canceled)
	}
}

func (s *session) read() error {
	in := newInbox(s.in)
	var requests coder
	var batch []*request
	for {
		if err := in.fill(); err != nil {
			return err
		}
		now := time.Now()
		batch = batch[:0]
		for {
			p, err := in.next()
			if err != nil {
				return err
			}
			if p == nil {
				break
			}
			r := &request{session: s}
			if r.id, err = requests.readRequest(p, &r.message); err != nil {
				return err
			}
			if r.budget > 0 {
				r.deadline = now.Add(r.budget)
			}
			batch = append(batch, r)
		}
		if err := s.admit(batch); err != nil {
			return err
		}
		clear(batch)
	}
}

// admit starts the requests of batch. While the host does not read its
// replies, admit waits, so that the session reads no further requests.
func (s *session) admit(batch []*request) error {
	s.out.mu.Lock()
	for {
		room := s.out.full()
		if room == nil {
			break
		}
		s.out.mu.Unlock()
		<-room
		s.out.mu.Lock()
	}
	write := false
	for i, r := range batch {
		if r.kind == kindCancel {
			if given := s.requests[r.id]; given != nil {
				given.Cancel(context.Canceled)
			}
			batch[i] = nil
			continue
		}
		if s.requests[r.id] != nil {
			s.out.mu.Unlock()
			return fmt.Errorf("%w: id %d is in use", errBroken, r.id)
		}
		if !s.enter(r) {
			write = s.reply(r, &answer{err: errBusy}) || write
			batch[i] = nil
		}
	}
	s.start(batch)
	s.out.mu.Unlock()
	if write {
		s.out.flush(false)
	}
	for _, r := range batch {
		if r != nil {
			s.startOp(r)
		}
	}
	return nil
}

// enter records the request r as under way, or returns false if too many of its kind are under way.
// The callers of session.enter, session.leave and session.reply must hold out.mu.
func (s *session) enter(r *request) bool {
	if s.under.of[r.kind] >= maxUnderWay {
		return false
	}
	s.requests[r.id] = r
	s.under.add(r.kind, 1)
	s.watchDeadline(r)
	return true
}

func (s *session) leave(r *request) {
	delete(s.requests, r.id)
	s.under.add(r.kind, -1)
}

// reply queues the answer to r. If it returns true, the caller must call out.flush.
func (s *session) reply(r *request, a *answer) (write bool) {
	return s.out.queue(func(b []byte) []byte { return appendAnswer(b, r.id, r.kind, a, s.redact) })
}

// watchDeadline makes the timer fire at r's deadline or earlier. When the timer fires, passDeadlines
// searches all requests for the next deadline. Most requests end long before their deadlines, so the
// timer fires about once per request timeout. The caller must hold out.mu.
func (s *session) watchDeadline(r *request) {
	if r.deadline.IsZero() || !s.next.IsZero() && !r.deadline.Before(s.next) {
		return
	}
	s.next = r.deadline
	s.timer.Reset(time.Until(s.next))
}

func (s *session) passDeadlines() {
	now := time.Now()
	var over []*request
	s.out.mu.Lock()
	s.next = time.Time{}
	for _, r := range s.requests {
		switch {
		case r.deadline.IsZero():
		case r.deadline.After(now):
			s.watchDeadline(r)
		default:
			over = append(over, r)
		}
	}
	s.out.mu.Unlock()
	for _, r := range over {
		r.Cancel(context.DeadlineExceeded)
	}
}
