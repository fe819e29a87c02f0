package frame

import "github.com/lockbench/lockbench/core/driver"

// opKinds maps kinds of requests to operations of a driver.Starter, or to 0 for none.
var opKinds = [kinds]driver.OpKind{
	kindAcquire: driver.OpAcquire, kindRenew: driver.OpRenew, kindRelease: driver.OpRelease, kindWithdraw: driver.OpWithdraw,
}

// startOp passes r to the backend, which will call finish.
func (s *session) startOp(r *request) {
	s.started.Add(1)
	s.starter.Start(r, driver.Op{Kind: opKinds[r.kind], Request: r.request}, r.finish)
}

// finish queues the reply to r. It does not write, because its caller may
// have more requests to finish. The flusher writes afterwards.
func (r *request) finish(result driver.Result) {
	s := r.session
	a := answer{token: result.Token, err: result.Err}
	s.out.mu.Lock()
	s.leave(r)
	write := s.reply(r, &a)
	s.out.mu.Unlock()
	if write {
		s.queued <- struct{}{} // does not block: only one goroutine at a time is the writer
	}
	s.started.Done()
}

// flush is the flusher, a goroutine that writes queued replies.
func (s *session) flush() {
	for range s.queued {
		s.out.flush(false)
	}
}
