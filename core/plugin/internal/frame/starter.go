package frame

import "github.com/lockbench/lockbench/core/driver"

// opKinds are the kinds that a driver.Starter can do.
var opKinds = [kinds]driver.OpKind{
	kindAcquire: driver.OpAcquire, kindRenew: driver.OpRenew, kindRelease: driver.OpRelease, kindWithdraw: driver.OpWithdraw,
}

// startOp hands r to the backend, which calls finish.
func (s *session) startOp(r *request) {
	s.started.Add(1)
	s.starter.Start(r, driver.Op{Kind: opKinds[r.kind], Request: r.request}, r.finish)
}

// finish replies. Its caller may have more requests to finish, so it leaves
// the writing to the flusher, which writes afterwards.
func (r *request) finish(result driver.Result) {
	s := r.session
	a := answer{token: result.Token, err: result.Err}
	s.out.mu.Lock()
	s.leave(r)
	write := s.reply(r, &a)
	s.out.mu.Unlock()
	if write {
		s.queued <- struct{}{} // there is one writer at a time: it has room
	}
	s.started.Done()
}

// flush writes queued replies; it is the flusher.
func (s *session) flush() {
	for range s.queued {
		s.out.flush(false)
	}
}
