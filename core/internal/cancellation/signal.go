// Package cancellation holds the half of a context that ends: package core makes one
// for each call to a backend, and the plugin one for each request.
package cancellation

import "sync"

// Signal is Done, Err and AfterFunc of a context.Context. A type that embeds
// it adds Deadline and Value, and ends it by Cancel. The zero Signal has not
// ended; it must not be copied.
//
// Note: context.WithCancel does the same, with a goroutine or an entry in its
// parent for each context. Signal costs nothing until a caller asks for Done.
type Signal struct {
	mu    sync.Mutex
	ended chan struct{} // made when a caller first asks for it
	err   error
	after map[*func()]struct{}
}

// Cancel ends the context with err. Only the first call does anything.
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

// AfterFunc saves package context a goroutine for each context that a
// backend derives from this one.
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
