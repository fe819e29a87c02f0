// Package wake wakes goroutines that wait for a channel.
package wake

import "sync"

// Up wakes the one who reads c, which has room for one, or who will read it next.
func Up(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it has yet to take the signal before this one
	}
}

// All wakes everyone who waits for its next change. Its methods may be called
// from any number of goroutines.
type All struct {
	mu   sync.Mutex
	next chan struct{} // nil while nobody waits
}

// Next returns a channel that the next call of Up closes.
func (a *All) Next() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next == nil {
		a.next = make(chan struct{})
	}
	return a.next
}

// Up wakes all who have asked for Next.
func (a *All) Up() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next != nil {
		close(a.next)
		a.next = nil
	}
}
