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
	names map[string]time.Time
	turns map[string]time.Time
}

// note notes that somebody waits for name.
func (c *contention) note(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names = put(c.names, name)
	c.known.Store(true)
}

// turn notes that it is owner's turn.
func (c *contention) turn(owner string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turns = put(c.turns, owner)
}

func put(m map[string]time.Time, key string) map[string]time.Time {
	now := time.Now()
	if m == nil {
		m = map[string]time.Time{}
	}
	if len(m) >= 1024 {
		for k, until := range m {
			if now.After(until) {
				delete(m, k)
			}
		}
	}
	m[key] = now.Add(contendedFor)
	return m
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
	if until, ok := c.turns[owner]; ok {
		delete(c.turns, owner)
		return now.After(until)
	}
	until, ok := c.names[name]
	if ok && now.After(until) {
		delete(c.names, name)
		c.known.Store(len(c.names) > 0)
		ok = false
	}
	return ok
}
