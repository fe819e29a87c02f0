// Package cas makes a backend from a store that has compare-and-set and a
// clock. Such a key-value store writes or deletes a key only if the key still
// has the revision that was read. The author writes a [Store] of six methods,
// and [New] returns a driver.Backend that keeps every rule of the contract.
//
// One record under one key holds everything about a lock: the holder, and
// the owners that were withdrawn recently. Each operation reads the record,
// decides, and writes the record if no client has changed it since. So
// every decision depends on a single read, and a write that arrives late
// finds another revision and does nothing.
//
// Hosts that wait are woken if the store is a [Watcher], and otherwise poll.
// There is no queue of hosts, so Properties.FIFO is false. To stay in a
// queue, every waiting host would have to write to the record each second,
// and each write would make writes of other hosts fail, even of the holder.
//
// # Where is what
//
//   - store.go: the interface that the author implements
//   - record.go: the record that the store keeps for a lock
//   - backend.go: the operations
//   - watch.go: waiting for a release, and observing
package cas

import (
	"context"
	"errors"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// ErrConflict is the error that a [Store]'s Put and Delete return, wrapped or not,
// if the key has another revision and the request has certainly changed nothing.
var ErrConflict = errors.New("the key has another revision")

// Store is one namespace of a key-value store. Methods may be called from any number of
// goroutines, and must return soon after their ctx ends. The backend gives every ctx a deadline.
//
// The client library must not repeat a request whose reply was lost: the second request
// would find the revision that the first request made, and report a conflict. An error that
// wraps none of package driver's errors counts as driver.ErrUnavailable with an unknown
// outcome. So wrap driver.ErrDenied if the store refuses, and both driver.ErrNotSent and
// driver.ErrUnavailable if the store certainly has not received the request.
//
// A key is 52 characters of [0-9a-v], made from the name of a lock. A value has
// at most about 100 KiB, and about 40 bytes more for each acquire of the lock
// that was withdrawn in the last 90 s.
type Store interface {
	// Read returns the store's entry of key, as the latest successful Put or
	// Delete of any client left it. If Read returns a stale copy, writes
	// fail and observers see an old holder, but nothing is granted twice.
	Read(ctx context.Context, key string) (Entry, error)
	// Put writes value, which is not empty, if key has that revision. If the key
	// does not exist, revision is 0 or the revision that Read returned. Of the
	// Entry that Put returns, only Revision and Written are used. The store should
	// delete the key after ttl if it can, and must not delete it earlier: a store
	// that counts in seconds must round up. Without such deletion, the key of a
	// lock that was never released remains until the lock is taken again.
	Put(ctx context.Context, key string, value []byte, revision uint64, ttl time.Duration) (Entry, error)
	// Delete deletes key if it has that revision.
	Delete(ctx context.Context, key string, revision uint64) error
	// List calls emit for each existing key, until emit returns false.
	List(ctx context.Context, emit func(Entry) bool) error
	// Check asks whether the store would serve these requests, as Check of driver.Backend does.
	Check(ctx context.Context) (About, error)
	// Close closes connections and ends goroutines, and returns after the last
	// of them. No other method is called afterwards.
	Close(ctx context.Context) error
}

// Entry is the state of one key in a store.
type Entry struct {
	Value []byte // empty if the key does not exist
	// Revision rises with each change of the key. No revision may occur twice, even after the
	// key was deleted and created again, or after the store has lost its data. The revision
	// of a grant is its token, so it must be below 2^53. A version that starts at 1 for each
	// new key, as ZooKeeper's does, is not suitable; a number that counts all changes of the
	// store is. If that number starts again when the store's data are lost, add to it the
	// time at which the data were created, in microseconds since 1970. New data then have
	// higher revisions, because a store makes fewer than a million changes a second.
	Revision uint64
	// Now is the store's time, read after the method was called and before it
	// returns. Only Read and List must set it. The clock may show the time in steps of
	// TTLStep, for example whole seconds: each lease lives one step longer for that.
	Now time.Time
	// Written is the store's time when it handled the Put that wrote Value, or
	// zero if the store does not say. With Written, all hosts ignore a renewal
	// that the network delayed past the end of its lease. Without it, the lease
	// lives on until Renew ends it, or for the TTL if its host has died.
	Written time.Time
}

// About describes a store. The fields have the same meaning as in driver.Properties.
type About struct{ Server, Durability string }

// Watcher is implemented by a [Store] that can report changes.
type Watcher interface {
	// Watch calls changed, which does not block, after each change of key and
	// whenever a change may have been missed, until stop is called. Watch must
	// report every change after it has returned. If it subscribes on the
	// connection that Read uses, it need only report changes after a Read that
	// began after Watch returned. Watch does not wait for the store.
	Watch(key string, changed func()) (stop func(), err error)
}

// Properties returns p, the claims of the author, with the claims that package cas makes added.
// watcher says whether the Store is a [Watcher], because the capabilities depend on that.
func Properties(p driver.Properties, watcher bool) driver.Properties {
	p.Scope, p.SurvivesPlugin, p.FIFO, p.FirstSpan = driver.ScopeShared, true, false, 0
	p.Capabilities = []driver.Capability{driver.CapAdmin}
	if watcher {
		p.Capabilities = append(p.Capabilities, driver.CapObserver, driver.CapNotifier)
	}
	return p
}
