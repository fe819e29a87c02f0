// Package cas makes a backend of a store that has compare-and-set: a key-value
// store that writes or deletes a key if its revision is still the one that was
// read, and that has a clock. The author writes a [Store] of six methods, and
// [New] returns a driver.Backend that keeps every rule of the contract.
//
// All that is known of a lock is one record under one key: the holder, and the
// owners that were withdrawn lately. Each operation reads it, decides, and writes
// it if it has not changed meanwhile, so that a decision is never made of parts
// that were read at different moments, and a request that arrives late meets
// another revision and does nothing.
//
// Hosts that wait are woken where the store is a [Watcher], and otherwise ask.
// There is no queue of hosts: every host that waits would write to the record
// each second to stay in it, and each write turns away the others, those of the
// holder among them. So Properties.FIFO is false.
//
// # Where is what
//
//   - store.go: what the author writes
//   - record.go: what the store keeps of a lock
//   - backend.go: the operations
//   - watch.go: who waits and who observes
package cas

import (
	"context"
	"errors"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// ErrConflict is what Put and Delete of a [Store] return, wrapped or not, when the
// key has another revision: certainly, the request has done nothing.
var ErrConflict = errors.New("the key has another revision")

// Store is a namespace of a store. A method may be called from any number of
// goroutines, and returns soon after its ctx ends; the backend sets an end to each.
//
// A request must not be sent again by itself when its reply was lost: the second
// one would meet the first one's revision, and report a conflict. An error that
// wraps none of package driver's counts as driver.ErrUnavailable, outcome unknown.
// So wrap driver.ErrDenied where the store refuses, and driver.ErrNotSent beside
// driver.ErrUnavailable where it certainly has not got the request.
//
// A key is 52 characters of [0-9a-v], made from the name of a lock. A value is at
// most about 100 KiB, and grows by 40 bytes for each acquire of its lock that was
// withdrawn within the last 90 seconds.
type Store interface {
	// Read returns what the store has of key, as the latest successful Put or
	// Delete of any client left it. A copy that lags behind costs attempts, and
	// shows observers an old holder; it grants nothing twice.
	Read(ctx context.Context, key string) (Entry, error)
	// Put writes value, which is not empty, if key has that revision: 0, or what
	// Read said, if there is none. Of
	// the Entry that it returns Revision counts, and Written.
	// The store may delete the key once ttl is over, and should, if it can: later
	// where it counts in seconds, never sooner. Else the keys of locks that were
	// never released remain until they are taken again.
	Put(ctx context.Context, key string, value []byte, revision uint64, ttl time.Duration) (Entry, error)
	// Delete deletes key if it has that revision.
	Delete(ctx context.Context, key string, revision uint64) error
	// List calls emit for each key that is there, until emit returns false.
	List(ctx context.Context, emit func(Entry) bool) error
	// Check asks whether the store would serve all this, as driver.Backend's does.
	Check(ctx context.Context) (About, error)
	// Close ends connections and goroutines, and returns after the last one. No
	// other method is called any more.
	Close(ctx context.Context) error
}

// Entry is what a store has of one key.
type Entry struct {
	Value []byte // empty when the key is not there
	// Revision rises with each change of the key, and none comes twice: not after the
	// key was deleted and made anew, nor after the store has lost its data. The
	// revision of a grant is its token, so it is below 2^53. A version that begins at 1
	// with each new key (ZooKeeper's) will not do; the number of the change does. Where
	// those begin anew with the store's data, begin them at the time of its creation
	// in microseconds since 1970, or add that time: less than a million changes are made
	// in a second, so that later data has higher ones.
	Revision uint64
	// Now is the store's clock, read after the method was called and before it returns;
	// Read alone must say it. Leases end on its grid: with a clock of whole seconds claim
	// a TTLMin and a TTLStep of seconds.
	Now time.Time
	// Written is the store's clock when it handled the Put that wrote Value, zero
	// where it does not say. A renewal that the network has delayed past the end of its
	// lease is void by it; without it such a lease lives until the renewal has
	// returned and undone it, or for the TTL if its host has died.
	Written time.Time
}

// About is what a store says about itself.
type About struct{ Server, Durability string }

// Watcher is an optional ability of a [Store]: it tells of changes.
type Watcher interface {
	// Watch calls changed, which does not block, after each change of key, and
	// whenever one may have been missed, until stop is called. Changes that are
	// made after its return count, or, where the store is asked to tell by a message
	// over the connection of Read, after a Read that began then. It does not wait
	// for the store.
	Watch(key string, changed func()) (stop func(), err error)
}

// Properties returns p, whose claims the author makes, with those that package cas
// makes: the capabilities, for a Store that is a [Watcher] or not.
func Properties(p driver.Properties, watcher bool) driver.Properties {
	p.Scope, p.SurvivesPlugin, p.FIFO, p.FirstSpan = driver.ScopeShared, true, false, 0
	p.Capabilities = []driver.Capability{driver.CapAdmin}
	if watcher {
		p.Capabilities = append(p.Capabilities, driver.CapObserver, driver.CapNotifier)
	}
	return p
}
