package kit

import (
	"context"
	"sync"
)

// Group has a context that lasts until a backend is closed, and runs goroutines that must end with
// this context. Any number of goroutines may call its methods.
type Group struct {
	context.Context
	end  context.CancelFunc
	mu   sync.Mutex // keeps goroutines from starting while End runs
	work sync.WaitGroup
}

// NewGroup returns a Group whose context has not ended.
func NewGroup() *Group {
	l := &Group{}
	l.Context, l.end = context.WithCancel(context.Background())
	return l
}

// Go runs f in a goroutine and returns true. After a call of End, it only returns false.
func (l *Group) Go(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Err() != nil {
		return false
	}
	l.work.Go(f)
	return true
}

// End ends the context.
func (l *Group) End() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end()
}

// Wait waits until all goroutines started by Go have returned. Call it after End.
func (l *Group) Wait() { l.work.Wait() }

// Close ends the context, waits for the goroutines, and then calls the function last. If ctx ends
// before that, Close returns ctx.Err() at once, and the function last is called later.
func (l *Group) Close(ctx context.Context, last func()) error {
	l.End()
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Wait()
		last()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
