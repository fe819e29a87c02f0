// Package driver is the contract between package core and a backend.
//
// Applications use package core. Authors of backends implement [Backend], describe it with a
// [Spec], and pass the Spec to serve.Main. The conformance suite in core/drivertest decides whether
// an implementation is correct. The names of the suite's cases begin with the rule numbers in this
// file, such as L1 or K3.
//
// A backend makes single attempts. Waiting, retrying, renewing, deadlines, queues and events are
// the work of core. Any number of goroutines may call a backend's methods, which must return soon
// after their ctx ends. All lease state in a backend's process must also be in the store (L8).
package driver

import (
	"context"
	"time"
)

// Request holds the arguments of the operations of a [Lock]. The comment of each method
// names the fields that the method reads. A backend must not keep or change the Value slice.
type Request struct {
	// Name of the lock: valid UTF-8 of 1 to 512 bytes, any character allowed, case-sensitive. core has
	// checked the name. The backend must encode it so that two names never become one key (K6).
	Name string
	// Owner is the random id of one grant: 1 to 64 characters of [A-Za-z0-9_-]. core makes it before
	// it sends the first byte (L1), and never uses it for another grant.
	Owner string
	// Label tells people who holds the lock: valid UTF-8, at most 256 bytes.
	Label string
	// Value is what a leader publishes, at most 64 KiB; nil for a plain lock.
	Value []byte
	// Token is the number that the store gave to the grant, or zero before the grant. Users see
	// another number, because core appends a count of the hand-overs between callers of one host.
	Token uint64
	// TTL is the time for which the store keeps the lease after this request. core has checked it
	// against the minimum, step and maximum in [Properties]. The store counts the TTL from the moment
	// at which it handles the request. The store never uses a client's clock, and core sends only
	// durations.
	TTL time.Duration
	// Keep is the time for which the lock must stay taken after this request, even if it is released.
	// Keep is the rest of the user's AtLeast (see core.LockOptions). In most requests it is zero.
	Keep time.Duration
}

// Lock has the operations on a lock. Each method makes one attempt, without waiting or retrying.
type Lock interface {
	// TryAcquire grants Name to Owner for TTL if no live grant exists, and returns the grant's token.
	// The store makes token and grant in one atomic step. The token is below 2^53, and is higher than
	// every earlier token of that name, except after failures that the Fencing field of [Properties]
	// does not cover (L6). Unless a grant is ended earlier, it expires by the store's clock.
	//
	// TryAcquire returns a [*HeldError] if another owner holds Name, or if the store reserves the lock
	// for the next waiter in its queue. A call by the owner that holds Name is not a renewal and
	// returns a HeldError too, with one exception. If the store made the grant without a request (see
	// [Grant]), and no TryAcquire or Renew has confirmed the grant yet, this call confirms it.
	// TryAcquire then returns the grant's token, and the lease lives for TTL from now. TryAcquire
	// returns [ErrWithdrawn] for an owner that was withdrawn. An error that wraps [ErrUnavailable]
	// means that the outcome is unknown, and the caller must withdraw the owner before it asks again.
	TryAcquire(ctx context.Context, r Request) (token uint64, err error)

	// Renew lets the lease of Name, Owner and Token live for TTL from now. Renew must compare owner
	// and token in the atomic step that extends the lease, and must never revive a lease that has
	// expired or was deleted. Renew returns a [*NotHeldError] if that lease no longer exists. Renew
	// must ignore Keep. In a renewal, only package serve uses Keep, in the plugin process.
	Renew(ctx context.Context, r Request) error

	// Release ends the lease of Name, Owner and Token, and wakes the next waiter. Release must compare
	// owner and token in the atomic step that changes the lease. If Keep > 0, Release does not delete
	// the lease, but shortens it to Keep, and never lengthens it. Release returns a [*NotHeldError] if
	// the lease does not exist. A repeated call is harmless (L7). For Token zero, which no lease has,
	// Release must return an error, whether it asks the store or not.
	Release(ctx context.Context, r Request) error

	// Withdraw undoes everything that a TryAcquire or Wait of owner for name did, or may still do.
	// Withdraw deletes the owner's grant whatever its token, removes the owner from the queue, and
	// wakes the next waiter if this owner had been woken. Once Withdraw has returned nil, no grant of
	// that owner exists or can come: a TryAcquire that arrives later is refused with ErrWithdrawn
	// (K3). It is not enough that the store has no grant, because the owner's request may still be on
	// its way. So a backend makes the store refuse the owner for at least a minute, or sends the
	// withdrawal after the request on the same ordered connection. A third way is to kill the
	// request's connection and wait until that connection is gone. If another process sent the owner's
	// requests, only a refusal by the store is enough, because that process may have died and left
	// requests unread in a socket. Withdraw returns nil for an owner unknown to the store.
	Withdraw(ctx context.Context, name, owner string) error

	// Inspect returns the holder of name. For a free lock it returns the zero Holder and no error.
	Inspect(ctx context.Context, name string) (Holder, error)

	// Proclaim replaces the published value of the lease of Name, Owner and Token with Value. It must
	// compare owner and token in the atomic step that replaces the value. It does not change the TTL.
	// Proclaim returns a [*NotHeldError] if that lease no longer exists. A leader is the holder of a
	// lease with a value, and a lock and an election with the same name are one lock.
	Proclaim(ctx context.Context, r Request) error
}

// Backend is a connection to one store. Opening a Backend does not wait for
// the store. If the store is down, only later requests return an error (K8).
type Backend interface {
	Lock
	// Check asks the store in one round trip whether it is reachable, accepts the credentials,
	// grants the needed rights, and has safe settings. A successful Check also updates the
	// properties that come from the server.
	Check(ctx context.Context) error
	// Properties returns the properties without asking the store.
	Properties() Properties
	// Close closes connections and ends goroutines, and returns after the last goroutine
	// has ended. Close does not release leases. Calls after Close return [ErrClosed].
	Close(ctx context.Context) error
}

// Waiter is an optional capability: the store wakes waiters, so that core need not poll.
type Waiter interface {
	// Wait puts Owner into the queue of Name, if it is not there yet, and returns as soon as Owner is
	// woken, or at once if Name is free. Wait also returns after the time in max, which is the rest of
	// the holder's TTL, but at most a second. core then calls TryAcquire, because an expiry wakes no
	// waiter. During a Wait, a backend may check whether Name is free. If Wait returns the zero Grant,
	// Name may be free, and core calls TryAcquire (K4). Wait must not miss a release that follows the
	// caller's refused TryAcquire. A release wakes one waiter, not all (K5). Owner's place in the
	// queue outlives the call of Wait. The place ends with a grant, with a withdrawal, or after a time
	// in which Owner calls neither Wait nor TryAcquire. That time is at least two seconds. While the
	// lock is free, it must not be much longer. If the store grants locks to waiters (see [Grant]) and
	// other hosts had the lock recently, core calls Wait before any TryAcquire. Such a Wait also
	// returns when the lease that existed at the call of Wait has ended. Wait returns ctx.Err() when
	// ctx ends.
	Wait(ctx context.Context, r Request, max time.Duration) (Grant, error)
}

// Notifier is an optional capability of a store that can report a release but has no queue. If a
// backend is no [Waiter], core calls TryAcquire whenever Notify reports a release. If the backend
// is no Notifier either, core polls. After a report, all waiters call TryAcquire at the same time,
// so they get the lock in no particular order.
type Notifier interface {
	// Notify calls emit as soon as it is subscribed to name, and again soon after a release, a
	// withdrawal or a Break has ended a lease of name. Notify must not miss such an end after the
	// first emit, but one emit may report several ends. An expiry needs no emit. A needless emit
	// costs core one request. Calls of emit do not overlap, and emit does not block. Notify returns
	// ctx.Err() when ctx ends, and another error as soon as it may miss the end of a lease.
	Notify(ctx context.Context, name string, emit func()) error
}

// Grant is a grant that the store made to a waiter without a TryAcquire, in the atomic step that
// freed the lock or found it free. That step belongs to a release, a withdrawal, a Break, or a
// request of another owner. The waiter saves the round trip of a TryAcquire (K4).
//
// The store makes such a grant only for a short time, because the waiter may be dead. It grants
// only to an owner whose process has recently sent a message that shows that the process runs. Sent
// is the instant at which that process sent the last such message that the store saw before the
// grant. So the grant was made after Sent. The waiter must renew before Sent plus For, and then has
// the lease for the TTL. A Grant that arrives after that time is only a hint to call TryAcquire.
// Wait may always return the zero Grant instead: TryAcquire then returns the grant's token.
type Grant struct {
	// Token of the grant; zero for none.
	Token uint64
	// Sent is an instant before the grant was made, by the monotonic clock of this process.
	Sent time.Time
	// For is the time for which the store keeps the grant after making it. For is positive. It is at
	// most the TTL of the request, and at most the time that FirstSpan in [Properties] allows.
	For time.Duration
}

// Observer is an optional capability: the store reports changes of a lock's holder.
// If the capability is not declared, core inspects the lock ten times a second.
type Observer interface {
	// Observe calls emit with the present holder of name, and again after each change of owner, token
	// or value; the zero Holder means that the lock is free. Calls of emit do not overlap, follow the
	// order of the changes, and never go back to a lower token. If changes follow each other closely,
	// Observe may emit only the newest. Observe returns ctx.Err() when ctx ends. When Observe can no
	// longer reach the store, it returns the cause. It must notice a silent server within seconds.
	Observe(ctx context.Context, name string, emit func(Holder)) error
}

// Watcher is an optional capability: the backend reports lost leases and outages.
type Watcher interface {
	// Watch calls emit for each notice, one call at a time, until ctx ends, and then returns
	// ctx.Err(). emit does not block. If Watch returns another error, core calls it again.
	Watch(ctx context.Context, emit func(Notice)) error
}

// Batcher is an optional capability: many operations in one call.
type Batcher interface {
	// Batch does every operation as if it were called alone, and returns one Result for each, at the
	// same index. Operations on the same lock are done in their order, and operations on different
	// locks in any order. An operation that must wait inside the store, for example for a row that
	// another client has locked, must not delay other operations.
	Batch(ctx context.Context, ops []Op) []Result
}

// Starter is an optional capability of a backend that sends several requests in one round trip. An
// operation that Start has begun needs no goroutine. Only the plugin process uses a Starter; the
// plugin client in the host does not declare the capability.
type Starter interface {
	// Start does the operation op as TryAcquire, Renew, Release or Withdraw would. It returns
	// without waiting, and calls the function done once, from any goroutine. The function done does
	// not block. If ctx ends before op is sent, op is not sent. If ctx ends later, done must still
	// be called within a fixed time.
	Start(ctx context.Context, op Op, done func(Result))
}

// Admin is an optional capability for operators.
type Admin interface {
	// List calls emit for each held lock whose name starts with prefix, in no
	// particular order, until emit returns false.
	List(ctx context.Context, prefix string, emit func(Holder) bool) error
	// Break ends the lease of name if its token is the given token, whichever client owns the lease.
	// Otherwise it returns a [*NotHeldError]. Tokens of later grants must still be higher.
	Break(ctx context.Context, name string, token uint64) error
}
