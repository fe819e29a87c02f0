// Package cas makes a backend from a store that has a clock and compare-and-set: the store writes
// or deletes a key only if the key still has the revision that the client has read. The author of a
// backend implements the six methods of [Store]. [New] then returns a driver.Backend that keeps
// every rule of the contract.
//
// The store keeps one record for each lock, with the holder and the recently withdrawn owners. Each
// operation reads the record, decides, and writes the record if no other client has changed it
// since. So a write that arrives late finds another revision and changes nothing.
//
// If the store is a [Watcher], it wakes hosts that wait for a lock. If the store is no Watcher,
// these hosts poll. There is no queue of waiting hosts, so Properties.FIFO is false. To stay in a
// queue, each host would have to write to the record every second, and each of these writes would
// make a write of another host fail, even a write of the holder.
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

// ErrConflict means that the request has changed nothing, because the key has another revision. The
// methods Put and Delete of a [Store] return ErrConflict, or an error that wraps it.
var ErrConflict = errors.New("the key has another revision")

// Store is a key-value store, or a part of one that contains only locks. Any number of goroutines
// may call its methods, which must return soon after ctx ends. ctx has a deadline, except in List
// and Close.
//
// If the reply to a request is lost, the client library must not send the request again. A repeated
// request would find the revision that the original request made, and report a conflict. An error
// that wraps no error of package driver means that the outcome is unknown, as driver.ErrUnavailable
// does. So wrap driver.ErrDenied if the store denies access. Wrap both driver.ErrNotSent and
// driver.ErrUnavailable if the store has certainly not received the request.
//
// A key has 52 characters of [0-9a-v], made from the name of a lock. A value has at most about 100
// KiB, plus about 40 bytes for each owner of this lock that was withdrawn in the last 90 s.
type Store interface {
	// Read returns the entry of key, as the last successful Put or Delete of any client left it. If
	// Read returns an old entry, no lock is granted twice, but writes fail and observers see an old
	// holder.
	Read(ctx context.Context, key string) (Entry, error)
	// Put writes value, which is not empty, if key has the given revision. For a key that does not
	// exist, revision is 0 or the revision that Read returned. The backend uses only Revision and
	// Written of the Entry that Put returns. After the time ttl, the store should delete the key if it
	// can. It must not delete the key earlier, so a store that counts seconds must round up. Without
	// the deletion, the key of a lock that was never released stays until the lock is acquired again.
	Put(ctx context.Context, key string, value []byte, revision uint64, ttl time.Duration) (Entry, error)
	// Delete deletes key if it has the given revision.
	Delete(ctx context.Context, key string, revision uint64) error
	// List calls emit for each key in the store, until emit returns false.
	List(ctx context.Context, emit func(Entry) bool) error
	// Check asks the store whether it can serve requests, like Check of a driver.Backend.
	Check(ctx context.Context) (About, error)
	// Close closes connections and waits until all its goroutines have ended. No other method is
	// called afterwards.
	Close(ctx context.Context) error
}

// Entry is the state of one key in a store.
type Entry struct {
	Value []byte // empty if the key does not exist
	// Revision must be higher after each change of the key. No revision of a key may occur twice,
	// even if the key was deleted and created again, or the store has lost its data. The backend
	// uses the revision as the token of a grant, so it must be below 2^53. A version that begins at
	// 1 for each new key, as in ZooKeeper, is not suitable. A number that counts all changes of the
	// store is suitable. If that number begins anew after a loss of the data, add the time at which
	// the data were created, in microseconds since 1970. New data then have higher revisions,
	// because a store makes fewer than a million changes per second.
	Revision uint64
	// Now is the store's time at a moment between the call of the method and its return. Only Read
	// and List must set it. The clock may show the time in steps, such as whole seconds, if TTLStep
	// is set to the step. Each lease then lives one step longer.
	Now time.Time
	// Written is the store's time when it wrote Value, or zero if the store does not report it. With
	// Written, all hosts ignore a renewal that arrived after the end of its lease. Without Written,
	// such a lease lives until Renew ends it, or for its TTL if the host has died.
	Written time.Time
}

// About describes a store. Its fields have the same meaning as in driver.Properties.
type About struct{ Server, Durability string }

// Watcher is an optional interface of a [Store] that can report changes.
type Watcher interface {
	// Watch calls changed after each change of key, and whenever it may have missed a change, until
	// the function stop is called. The function changed does not block. Watch must report every change
	// that follows its return, with one exception. If the subscription uses the connection of Read,
	// Watch may miss changes that the next Read shows. Watch does not wait for the store.
	Watch(key string, changed func()) (stop func(), err error)
}

// Properties returns p, the claims of the Store's author, with the claims of package cas added. The
// parameter watcher says whether the Store is a [Watcher], because some capabilities need one.
func Properties(p driver.Properties, watcher bool) driver.Properties {
	p.Scope, p.SurvivesPlugin, p.FIFO, p.FirstSpan = driver.ScopeShared, true, false, 0
	p.Capabilities = []driver.Capability{driver.CapAdmin}
	if watcher {
		p.Capabilities = append(p.Capabilities, driver.CapObserver, driver.CapNotifier)
	}
	return p
}
