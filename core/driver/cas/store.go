// Package cas makes a backend of a store that has compare-and-set: a key-value
// store that writes or deletes a key if its revision is still the one that was
// read, and that has a clock. The author writes a [Store] of six methods, and
// [New] returns a driver.Backend that keeps every rule of the contract.
//
// One record under one key holds all that is known of a lock: the holder,
// and the owners that were withdrawn lately. Each operation reads the
// record, decides, and writes it if it has not changed meanwhile. So no
// decision mixes parts that were read at different moments, and a request
// that arrives late meets another revision and does nothing.
//
// Hosts that wait are woken if the store is a [Watcher], and otherwise ask.
// There is no queue of hosts. Every host that waits would have to write to
// the record each second to stay in it, and each write would turn away the
// writes of others, the holder's included. So Properties.FIFO is false.
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

// ErrConflict is the error of a [Store]'s Put and Delete, wrapped or not, when
// the key has another revision and the request has certainly done nothing.
var ErrConflict = errors.New("the key has another revision")

// Store is a namespace of a store. A method may be called from any number of
// goroutines, and returns soon after its ctx ends; the backend sets an end to each.
//
// A request must not be sent again automatically when its reply was lost: the second
// one would meet the first one's revision, and report a conflict. An error that
// wraps none of package driver's errors counts as driver.ErrUnavailable, outcome
// unknown. So wrap driver.ErrDenied if the store refuses, and driver.ErrNotSent
// beside driver.ErrUnavailable if the store certainly has not received the request.
//
// A key is 52 characters of [0-9a-v], made from the name of a lock. A value is at
// most about 100 KiB, and grows by 40 bytes for each acquire of its lock that was
// withdrawn within the last 90 seconds.
type Store interface {
	// Read returns the store's entry of key, as the latest successful Put or
	// Delete of any client left it. A stale copy costs attempts, and shows
	// observers an old holder; it grants nothing twice.
	Read(ctx context.Context, key string) (Entry, error)
	// Put writes value, which is not empty, if key has that revision. If there
	// is no such key, revision is 0 or what Read returned. In the Entry that Put
	// returns only Revision and Written count. The store may delete the key once
	// ttl is over, and should if it can; a store that counts in seconds deletes
	// later, never sooner. Otherwise the keys of locks that were never released
	// remain until the locks are taken again.
	Put(ctx context.Context, key string, value []byte, revision uint64, ttl time.Duration) (Entry, error)
	// Delete deletes key if it has that revision.
	Delete(ctx context.Context, key string, revision uint64) error
	// List calls emit for each key that is there, until emit returns false.
	List(ctx context.Context, emit func(Entry) bool) error
	// Check asks whether the store would serve all this, as driver.Backend's does.
	Check(ctx context.Context) (About, error)
	// Close ends connections and goroutines, and returns after the last one. No
	// other method is called afterwards.
	Close(ctx context.Context) error
}

// Entry is the state of one key in a store.
type Entry struct {
	Value []byte // empty when the key is not there
	// Revision rises with each change of the key, and no revision comes twice: not
	// after the key was deleted and made anew, nor after the store has lost its data.
	// The revision of a grant is its token, so it is below 2^53. A version that begins
	// at 1 with each new key (ZooKeeper's) will not do; the number of the change does.
	// If those numbers begin anew with the store's data, begin them at the data's
	// creation time in microseconds since 1970, or add that time. Fewer than a million
	// changes are made in a second, so later data has higher revisions.
	Revision uint64
	// Now is the store's clock, read after the method was called and before it
	// returns; only Read must return it. Leases end on the grid of that clock:
	// for a clock of whole seconds claim a TTLMin and a TTLStep of seconds.
	Now time.Time
	// Written is the store's clock when it handled the Put that wrote Value, zero
	// if the store does not say. It makes a renewal void that the network has
	// delayed past the end of its lease. Without it, such a lease lives until the
	// renewal has returned and undone it, or for the TTL if its host has died.
	Written time.Time
}

// About describes a store in its own words.
type About struct{ Server, Durability string }

// Watcher is an optional ability of a [Store] to report changes.
type Watcher interface {
	// Watch calls changed, which does not block, after each change of key, and
	// whenever a change may have been missed, until stop is called. It must
	// report every change made after it returned. If the store is asked for
	// messages over the connection of Read, it must report those after a Read
	// that began after Watch returned. Watch does not wait for the store.
	Watch(key string, changed func()) (stop func(), err error)
}

// Properties returns p, whose claims the author makes, and adds the claims
// of package cas: the capabilities, for a Store that is a [Watcher] or not.
func Properties(p driver.Properties, watcher bool) driver.Properties {
	p.Scope, p.SurvivesPlugin, p.FIFO, p.FirstSpan = driver.ScopeShared, true, false, 0
	p.Capabilities = []driver.Capability{driver.CapAdmin}
	if watcher {
		p.Capabilities = append(p.Capabilities, driver.CapObserver, driver.CapNotifier)
	}
	return p
}
