package kit

import (
	"sync"
	"time"
)

// Recent is a map that keeps new entries and forgets old ones. An entry stays for at least Age,
// unless Limit newer entries come. It stays for at most three times Age. There are at most twice
// Limit entries. The zero value forgets nothing. Any number of goroutines may call the methods.
//
// A Recent rotates two maps, so that it never searches for old entries.
type Recent[K comparable, V any] struct {
	Age   time.Duration // 0 means no limit of age
	Limit int           // 0 means no limit of number

	mu            sync.Mutex
	recent, older map[K]V
	turned        time.Time // when the recent map was last empty
}

// Put remembers the value v for the key k, in place of an earlier value.
func (m *Recent[K, V]) Put(k K, v V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn()
	if m.recent == nil {
		m.recent = map[K]V{}
	}
	m.recent[k] = v
}

// Get returns the last value put for the key k. It returns false if no value is remembered.
func (m *Recent[K, V]) Get(k K) (v V, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn()
	if v, ok = m.recent[k]; !ok {
		v, ok = m.older[k]
	}
	return v, ok
}

// Has reports whether a value is remembered for the key k.
func (m *Recent[K, V]) Has(k K) bool {
	_, ok := m.Get(k)
	return ok
}

// Take forgets the key k, and reports whether a value for it was remembered.
func (m *Recent[K, V]) Take(k K) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.recent)+len(m.older) == 0 {
		return false
	}
	m.turn()
	_, newer := m.recent[k]
	_, older := m.older[k]
	delete(m.recent, k)
	delete(m.older, k)
	return newer || older
}

// Len returns the number of entries. A key that was put twice may count twice.
func (m *Recent[K, V]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn()
	return len(m.recent) + len(m.older)
}

// turn makes the recent map the older map if it has reached Age or Limit. The caller must hold mu.
func (m *Recent[K, V]) turn() {
	var age time.Duration
	if m.Age > 0 {
		age = time.Since(m.turned)
	}
	if age <= m.Age && (m.Limit == 0 || len(m.recent) < m.Limit) {
		return
	}
	m.recent, m.older = m.older, m.recent
	clear(m.recent)
	if m.Age > 0 {
		if age > 2*m.Age {
			clear(m.older)
		}
		m.turned = time.Now()
	}
}
