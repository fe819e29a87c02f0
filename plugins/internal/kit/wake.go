package kit

import "sync"

// Wake wakes the one who reads c, which has room for one, or who will read it next.
func Wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it has yet to take the signal before this one
	}
}

// Broadcast wakes everyone who waits for its next change. Its methods may be called
// from any number of goroutines.
type Broadcast struct {
	mu   sync.Mutex
	next chan struct{} // nil while nobody waits
}

// Next returns a channel that the next call of Up closes.
func (b *Broadcast) Next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

// Up wakes all who have asked for Next.
func (b *Broadcast) Up() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}
