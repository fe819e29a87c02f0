package frame

import (
	"context"
	"time"
)

// deadlines cancels the requests of a session at their deadlines, with one timer. A request whose
// deadline is before the timer's time resets the timer. When the timer fires, passDeadlines
// searches all requests for the next deadline. Most requests end long before their deadlines, so
// the timer fires about once per request timeout. The session's out.mu guards the fields.
type deadlines struct {
	timer *time.Timer
	next  time.Time // zero if the timer is not set
}

// watchDeadline makes the timer fire at r's deadline or earlier. The caller must hold out.mu.
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
