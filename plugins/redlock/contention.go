package redlock

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// contendedFor is how long a lock counts as contended at least after a waiter was
// seen.
const contendedFor = 2 * time.Second

// contention remembers for which locks somebody waits, and which owners of
// this host were told that it is their turn. It decides only in which order
// nodes are asked.
type contention struct {
	known atomic.Bool // keeps locks for which nobody waits from the mutex
	mu    sync.Mutex  // lets known follow names
	names kit.Recent[string, struct{}]
	turns kit.Recent[string, struct{}] // owners
	lacks kit.Recent[string, []bool]   // by owner, see noteRefusal
}

func (c *contention) init() {
	c.names.Age, c.turns.Age, c.lacks.Age = contendedFor, contendedFor, contendedFor
}

// note notes that somebody waits for name.
func (c *contention) note(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names.Put(name, struct{}{})
	c.known.Store(true)
}

// noteRefusal notes that a majority refused owner, and which nodes do not have the
// lease: they had granted the lock to owner when the holder asked, and get the
// lease with its next renewal.
func (c *contention) noteRefusal(name, owner string, nodes []bool) {
	c.lacks.Put(owner, nodes)
	c.note(name)
}

// lacksLease reports whether node does not have the lease that refused owner.
func (c *contention) lacksLease(owner string, node int) bool {
	if !c.known.Load() {
		return false
	}
	nodes, ok := c.lacks.Get(owner)
	return ok && nodes[node]
}

// outOfTurn reports whether others wait for name, and it is not owner's turn. A turn
// is good for one attempt.
func (c *contention) outOfTurn(name, owner string) bool {
	if !c.known.Load() || c.turns.Take(owner) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	waits := c.names.Has(name)
	if !waits {
		c.known.Store(c.names.Len() > 0)
	}
	return waits
}
