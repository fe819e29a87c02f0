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

// note notes that somebody waits for name.
func (c *contention) note(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names.put(name, contendedFor)
	c.known.Store(true)
}

// turn notes that it is owner's turn.
func (c *contention) turn(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turns.put(owner, contendedFor)
}

// out reports whether others wait for name, and it is not owner's turn. A turn
// is good for one attempt.
func (c *contention) out(name, owner string) bool {
	if !c.known.Load() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turns.take(owner) {
		return false
	}
	waits := c.names.has(name)
	if !waits {
		c.known.Store(len(c.names.until) > 0)
	}
	return waits
}
