// Package cancellation implements the cancellation of contexts. Package core embeds a [Signal] in
// the context of each call to a backend. A plugin embeds a Signal in the context of each request.
package cancellation

import "sync"

// Signal implements Done, Err and AfterFunc of a context.Context. A type that embeds Signal must
// add Deadline and Value, and call Cancel to end the context. The zero Signal is a context that has
// not ended. A Signal must not be copied.
//
// Note: for each context, context.WithCancel needs a goroutine or an entry in the parent context. A
// Signal allocates nothing until Done or AfterFunc is called.
type Signal struct {
	mu    sync.Mutex
	ended chan struct{} // made by the first call of Done
	err   error
	after map[*func()]struct{}
}

// Cancel ends the context with err. Only the first call has an effect.
func (l *Signal) Cancel(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	l.err = err
	if l.ended != nil {
		close(l.ended)
	}
	for f := range l.after {
		go (*f)()
	}
	l.after = nil
}

// Done implements context.Context.
func (l *Signal) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended == nil {
		l.ended = make(chan struct{})
		if l.err != nil {
			close(l.ended)
		}
	}
	return l.ended
}

// Err implements context.Context.
func (l *Signal) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// AfterFunc calls f in a new goroutine after the context has ended. If a backend derives a context
// from this one, package context calls AfterFunc instead of starting a goroutine.
func (l *Signal) AfterFunc(f func()) (stop func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		go f()
		return func() bool { return false }
	}
	if l.after == nil {
		l.after = map[*func()]struct{}{}
	}
	l.after[&f] = struct{}{}
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		_, waiting := l.after[&f]
		delete(l.after, &f)
		return waiting
	}
}
