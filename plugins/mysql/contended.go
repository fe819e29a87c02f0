package mysql

import (
	"sync"
	"time"
)

// contendedFor is how long a lock is taken to be waited for after the last sign of
// it.
const contendedFor = 10 * time.Second

// contended remembers which locks are waited for. It is a guess that chooses the
// statement: a wrong one costs a second statement, and nothing else.
type contended struct {
	mu    sync.Mutex
	names map[string]time.Time // of the last sign
}

func (b *contended) is(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	last, known := b.names[name]
	return known && time.Since(last) < contendedFor
}

func (b *contended) mark(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.names == nil {
		b.names = map[string]time.Time{}
	}
	b.names[name] = time.Now()
}

// forget drops what is over.
func (b *contended) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, last := range b.names {
		if time.Since(last) >= contendedFor {
			delete(b.names, name)
		}
	}
}
