package frame

import (
	"context"
	"time"
)

// deadlines ends the requests of a session in time, with one timer. The
// timer is set to the earliest deadline seen so far, and when it fires looks
// at all requests for the next one. Most requests are over long before, and
// later ones have later deadlines. So the timer fires about once in the time
// of a deadline and is hardly ever reset. The session's mutex guards it.
type deadlines struct {
	timer *time.Timer
	next  time.Time // zero: not set
}

// watchDeadline makes r end at its deadline. The caller holds the session's mutex.
func (s *session) watchDeadline(r *request) {
	d := &s.deadlines
	if r.deadline.IsZero() || !d.next.IsZero() && !r.deadline.Before(d.next) {
		return
	}
	d.next = r.deadline
	pause := time.Until(d.next)
	if d.timer == nil {
		d.timer = time.AfterFunc(pause, s.passDeadlines)
		return
	}
	d.timer.Reset(pause)
}

// passDeadlines ends the requests whose time is over.
func (s *session) passDeadlines() {
	now := time.Now()
	var over []*request
	s.out.mu.Lock()
	s.deadlines.next = time.Time{}
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
