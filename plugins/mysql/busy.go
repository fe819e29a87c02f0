package mysql

import (
	"sync"
	"time"
)

// busyFor is how long a lock is taken to be waited for after the last sign of
// it.
const busyFor = 10 * time.Second

// busy remembers which locks are waited for. It is a guess that chooses the
// statement: a wrong one costs a second statement, and nothing else.
type busy struct {
	mu    sync.Mutex
	names map[string]time.Time // of the last sign
}

func (b *busy) is(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	last, known := b.names[name]
	return known && time.Since(last) < busyFor
}

func (b *busy) mark(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.names == nil {
		b.names = map[string]time.Time{}
	}
	b.names[name] = time.Now()
}

// forget drops what is over.
func (b *busy) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, last := range b.names {
		if time.Since(last) >= busyFor {
			delete(b.names, name)
		}
	}
}
