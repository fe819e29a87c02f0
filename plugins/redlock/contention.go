package redlock

import (
	"sync"
	"sync/atomic"
	"time"
)

// contendedFor is how long a lock counts as contended after a waiter was seen.
const contendedFor = 2 * time.Second

// contention remembers for which locks somebody waits, and which owners of
// this host were told that it is their turn. It decides only in which order
// nodes are asked.
type contention struct {
	known atomic.Bool // keeps locks for which nobody waits from the mutex
	mu    sync.Mutex
	names recent
	turns recent
}

// recent has what was put there within contendedFor, and some that is older.
type recent struct {
	until   map[string]time.Time
	sweepAt int // size at which the old ones are dropped
}

// note notes that somebody waits for name.
func (c *contention) note(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names.put(name)
	c.known.Store(true)
}

// turn notes that it is owner's turn.
func (c *contention) turn(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turns.put(owner)
}

// put takes constant time on average: it sweeps when the size has doubled.
func (m *recent) put(key string) {
	now := time.Now()
	if m.until == nil {
		m.until = map[string]time.Time{}
	}
	if len(m.until) >= m.sweepAt {
		for k, until := range m.until {
			if now.After(until) {
				delete(m.until, k)
			}
		}
		m.sweepAt = 2*len(m.until) + 1024
	}
	m.until[key] = now.Add(contendedFor)
}

// out reports whether others wait for name, and it is not owner's turn. A turn
// is good for one attempt.
func (c *contention) out(name, owner string) bool {
	if !c.known.Load() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if until, ok := c.turns.until[owner]; ok {
		delete(c.turns.until, owner)
		return now.After(until)
	}
	until, ok := c.names.until[name]
	if ok && now.After(until) {
		delete(c.names.until, name)
		c.known.Store(len(c.names.until) > 0)
		ok = false
	}
	return ok
}
