package frame

import (
	"context"
	"sync"
	"time"
)

// requestCtx is the context of one request in the plugin: it ends when the
// host cancels, when its deadline passes, or with the connection.
//
// Note: context.WithDeadline would do, with a timer for each request, which
// hardly ever fires. Here the session has one timer for all; see deadlines.
type requestCtx struct {
	deadline time.Time // zero: none

	mu    sync.Mutex
	ended chan struct{} // made when somebody asks for it
	err   error
	after map[*func()]struct{}
}

func (r *requestCtx) cancel(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return
	}
	r.err = err
	if r.ended != nil {
		close(r.ended)
	}
	for f := range r.after {
		go (*f)()
	}
	r.after = nil
}

// Deadline implements context.Context.
func (r *requestCtx) Deadline() (time.Time, bool) { return r.deadline, !r.deadline.IsZero() }

// Value implements context.Context.
func (*requestCtx) Value(any) any { return nil }

// Done implements context.Context.
func (r *requestCtx) Done() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended == nil {
		r.ended = make(chan struct{})
		if r.err != nil {
			close(r.ended)
		}
	}
	return r.ended
}

// Err implements context.Context.
func (r *requestCtx) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// AfterFunc spares package context a goroutine for each context that a
// backend derives from this one.
func (r *requestCtx) AfterFunc(f func()) (stop func() bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		go f()
		return func() bool { return false }
	}
	if r.after == nil {
		r.after = map[*func()]struct{}{}
	}
	r.after[&f] = struct{}{}
	return func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		_, waiting := r.after[&f]
		delete(r.after, &f)
		return waiting
	}
}

var _ context.Context = (*requestCtx)(nil)
