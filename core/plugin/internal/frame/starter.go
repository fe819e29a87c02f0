package frame

import "github.com/lockbench/lockbench/core/driver"

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
