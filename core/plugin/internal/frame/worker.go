package frame

import (
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// maxIdle is the largest number of idle workers. Idle workers are kept, because their stacks have
// already grown. Any further worker ends after its request.
const maxIdle = 256

// worker is a goroutine that executes one request after another.
//
// Note: one Batch call for all requests that arrive together would need fewer goroutines. But no
// reply would be sent before the slowest request had ended, so one slow request would delay others.
// A backend can itself combine the requests of several workers into a batch.
type worker struct{ next chan *request }

// start passes the requests in batch to workers, and replaces them by nil in batch. Requests that
// the starter can execute stay in batch. The caller must hold out.mu.
func (s *session) start(batch []*request) {
	for i, r := range batch {
		if r == nil || s.starter != nil && opKinds[r.kind] != 0 {
			continue
		}
		batch[i] = nil
		if last := len(s.idle) - 1; last >= 0 {
			w := s.idle[last]
			s.idle = s.idle[:last]
			w.next <- r // does not block: next has a buffer of 1
			continue
		}
		w := &worker{next: make(chan *request, 1)}
		s.workers.Go(func() { s.work(w, r) })
	}
}

func (s *session) work(w *worker, r *request) {
	for r != nil {
		a := s.do(r)
		s.out.mu.Lock()
		s.leave(r)
		if s.reply(r, &a) {
			others := s.under.calls() > 0
			s.out.mu.Unlock()
			s.out.flush(others)
			s.out.mu.Lock()
		}
		rests := s.rest(w)
		s.out.mu.Unlock()
		if !rests {
			return
		}
		r = <-w.next // nil if the session is over
	}
}

// rest makes the worker w idle, or returns false if w must end. The caller must hold out.mu.
func (s *session) rest(w *worker) bool {
	if s.over || len(s.idle) >= maxIdle {
		return false
	}
	s.idle = append(s.idle, w)
	return true
}

func (s *session) do(r *request) (a answer) {
	b := s.backend
	switch r.kind {
	case kindAcquire:
		a.token, a.err = b.TryAcquire(r, r.request)
	case kindRenew:
		a.err = b.Renew(r, r.request)
	case kindRelease:
		a.err = b.Release(r, r.request)
	case kindWithdraw:
		a.err = b.Withdraw(r, r.request.Name, r.request.Owner)
	case kindInspect:
		a.holder, a.err = b.Inspect(r, r.request.Name)
	case kindProclaim:
		a.err = b.Proclaim(r, r.request)
	case kindWait:
		a.err = driver.ErrUnsupported
		if s.waiter != nil {
			began := time.Now()
			var g driver.Grant
			if g, a.err = s.waiter.Wait(r, r.request, r.max); g.Token != 0 {
				a.token, a.waited, a.span = g.Token, g.Sent.Sub(began), g.For
			}
		}
	case kindBatch:
		a.err = driver.ErrUnsupported
		if s.batcher != nil {
			a.results, a.err = s.batcher.Batch(r, r.ops), nil
		}
	}
	return a
}

// opKinds maps kinds of requests to operations of a driver.Starter; 0 means no such operation.
var opKinds = [kinds]driver.OpKind{
	kindAcquire: driver.OpAcquire, kindRenew: driver.OpRenew, kindRelease: driver.OpRelease, kindWithdraw: driver.OpWithdraw,
}

func (s *session) startOp(r *request) {
	s.started.Add(1)
	s.starter.Start(r, driver.Op{Kind: opKinds[r.kind], Request: r.request}, r.finish)
}

// finish queues the reply to the request r. A separate goroutine writes all queued replies
// together, because the backend may finish several requests at once.
func (r *request) finish(result driver.Result) {
	s := r.session
	a := answer{token: result.Token, err: result.Err}
	s.out.mu.Lock()
	s.leave(r)
	write := s.reply(r, &a)
	s.out.mu.Unlock()
	if write {
		s.queued <- struct{}{} // does not block, because only one goroutine at a time is the writer
	}
	s.started.Done()
}

func (s *session) flush() {
	for range s.queued {
		s.out.flush(false)
	}
}
