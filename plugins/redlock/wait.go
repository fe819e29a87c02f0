package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// Wait puts r.Owner into a queue, and returns when r.Owner should call TryAcquire; see
// driver.Waiter.
//
// Hosts find the node with the lock's queue by a hash of the lock's name; see queueOf. A waiter in a
// queue on a wrong node is woken too, because each node's vote on a release says whether the node's
// own queue has waiters. When the node with the queue is lost, its waiters enter the queue of the
// next node.
func (b *Backend) Wait(ctx context.Context, r driver.Request, most time.Duration) (none driver.Grant, err error) {
	for end := time.Now().Add(most); ; {
		moved := b.changed.Next()
		i := b.queueOf(r.Name, r.Owner)
		if i < 0 {
			return none, failed(ctx, r, b.rest(ctx, moved, time.After(time.Until(end))))
		}
		b.contention.note(r.Name)
		turn, _, err := b.nodes[i].store.Wait(ctx, r, time.Until(end), moved)
		b.contention.note(r.Name) // once more, because Wait may have taken longer than contendedFor
		switch {
		case err != nil:
			return none, failed(ctx, r, err)
		case turn:
			b.contention.turns.Put(r.Owner, struct{}{})
			return none, nil
		case time.Until(end) <= 0 || b.queueOf(r.Name, r.Owner) != i:
			return none, nil
		}
	}
}

// queueOf returns the index of the node whose queue the owner uses for a lock, or -1 if no node
// votes. It chooses the voting node with the highest hash of the node's run id and the lock's name
// (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998). The hash uses
// run ids, because hosts may list nodes in any order and by different addresses. A node that lacks
// the holder's lease is skipped, because the end of the lease would wake no waiter on it.
func (b *Backend) queueOf(name, owner string) int {
	queue, highest := -1, uint64(0)
	for i, n := range b.nodes {
		h := scatter(fnv1a(n.identity.Load(), name))
		if (queue < 0 || h > highest) && n.votes() && !b.contention.lacksLease(owner, i) {
			queue, highest = i, h
		}
	}
	return queue
}

// fnvStart is the FNV-1a hash of the empty text.
const fnvStart = 14695981039346656037

// fnv1a adds a text to an FNV-1a hash. It returns the new hash, which is the same on every host.
func fnv1a(hash uint64, text string) uint64 {
	for i := range len(text) {
		hash = (hash ^ uint64(text[i])) * 1099511628211
	}
	return hash
}

// scatter spreads a difference in any bit of a hash over all bits (MurmurHash3's finalizer).
// Without scatter, short names would hardly change the highest bits of a hash, so one node would
// have the queues of most such names.
func scatter(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

func failed(ctx context.Context, r driver.Request, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, driver.ErrDenied):
		// The caller should try again, because the other nodes can grant the lock without this one.
		err = fmt.Errorf("%w: %s", driver.ErrUnavailable, err.Error())
	}
	return fmt.Errorf("redlock: wait for %q: %w", r.Name, err)
}

// leaveQueues makes this host forget the owner's places in queues. It returns false if the owner
// can be in no queue.
func (b *Backend) leaveQueues(owner string) bool {
	if !b.contention.known.Load() {
		return false
	}
	for _, n := range b.nodes {
		n.store.Wakeups.Leave(owner)
	}
	return true
}

// contendedFor is how long, at least, a lock counts as contended after a waiter was seen.
const contendedFor = 2 * time.Second

// contention records which locks have waiters, and which owners of this host have the turn. A wrong
// record cannot cause a double grant. It only changes which node is asked first, and which node's
// queue an owner enters.
type contention struct {
	known atomic.Bool // if false, no lock has waiters, and mu need not be locked
	mu    sync.Mutex  // keeps known consistent with names
	names kit.Recent[string, struct{}]
	turns kit.Recent[string, struct{}] // owners whose turn it is
	lacks kit.Recent[string, []vote]   // the votes that refused an owner; see lacksLease
}

func (c *contention) init() {
	c.names.Age, c.turns.Age, c.lacks.Age = contendedFor, contendedFor, contendedFor
}

func (c *contention) note(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names.Put(name, struct{}{})
	c.known.Store(true)
}

// lacksLease reports whether a node granted the owner the lock when a majority last refused that.
// Such a node lacks the holder's lease, and gets a copy soon, or after the holder's next renewal.
func (c *contention) lacksLease(owner string, node int) bool {
	if !c.known.Load() {
		return false
	}
	votes, ok := c.lacks.Get(owner)
	return ok && votes[node].yes()
}

// outOfTurn reports whether the lock called name has waiters and it is not the owner's turn, as far
// as this host knows. If it is the owner's turn, the call uses up this turn.
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
