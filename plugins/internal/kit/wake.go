package kit

import "sync"

// Wake makes the current or the next read of c return. The channel c must buffer one signal.
func Wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // the reader has not taken the last signal yet
	}
}

// Broadcast wakes all goroutines that wait for the next call of Up. Any number of goroutines may
// call its methods.
type Broadcast struct {
	mu   sync.Mutex
	next chan struct{} // nil while no caller waits
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

// Up wakes all goroutines that wait for a channel from Next.
func (b *Broadcast) Up() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}
