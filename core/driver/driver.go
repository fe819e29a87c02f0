// Package driver is the contract between package core and a backend.
//
// Applications use package core. Authors of backends implement [Backend],
// describe it with a [Spec], and hand that to serve.Main. The conformance
// suite in core/drivertest decides whether an implementation is right; the
// rule numbers in this file (L1, K3, ...) are its cases.
//
// A backend makes single attempts. All waiting, retrying, renewing, deadlines,
// queues and events live in core, once. Every method may be called from any
// number of goroutines, must return soon after its ctx ends, and must keep no
// lease state in the process that is not also in the store (L8).
package driver

import (
	"context"
	"time"
)

// Request holds the arguments of the operations of a [Lock]. Each method says
// which fields it reads. A backend must not keep or change the Value slice.
type Request struct {
	// Name of the lock: valid UTF-8 of 1 to 512 bytes, any character allowed,
	// case-sensitive. core has checked it; the backend encodes it so that two
	// names never collide (K6).
	Name string
	// Owner is the random id of one grant, made in core before the first byte
	// is sent (L1): 1 to 64 characters of [A-Za-z0-9_-]. It is never reused.
	Owner string
	// Label says for people who holds the lock: valid UTF-8, at most 256 bytes.
	Label string
	// Value is what a leader publishes, at most 64 KiB; nil for a plain lock.
	Value []byte
	// Token is the number of the grant; zero before it is granted. Users see another
	// number: core adds the number of the hand-over inside a host as its low bits.
	Token uint64
	// TTL is how long the store keeps the lease after this request. core has
	// checked it against the minimum, step and maximum in [Properties]. The
	// store counts it from when it handles the request, never from a client's
	// clock; only durations cross the wire.
	TTL time.Duration
	// Keep is the rest of the shortest time for which the lock must stay taken
	// (core's AtLeast); zero in most requests.
	Keep time.Duration
}

// Lock is one attempt of each operation. None of them waits or retries.
type Lock interface {
	// TryAcquire grants Name to Owner for TTL if no live grant exists, and
	// returns the grant's token: minted in the same atomic step, higher than
	// every earlier token of that name as far as [Properties] Fencing claims,
	// and below 2^53 (L6). A grant exists until it expires by the store's own clock.
	//
	// TryAcquire returns a [*HeldError] if another owner holds Name, or if the
	// store reserves it for a waiter whose turn it is. Asking again with an
	// owner that holds Name is not a renewal and returns a HeldError too, with
	// one exception. If the store made the grant by itself (see [Grant]) and
	// neither TryAcquire nor Renew has confirmed it yet, this call confirms it.
	// It then returns the grant's token, and the lease lives for TTL from now.
	// It returns [ErrWithdrawn] for an owner that was withdrawn. An error that
	// wraps [ErrUnavailable] means that the outcome is unknown, and the caller
	// withdraws the owner before asking again.
	TryAcquire(ctx context.Context, r Request) (token uint64, err error)

	// Renew lets the lease of Name, Owner and Token live for TTL from now. It
	// must compare owner and token in the same step, and must never bring back
	// a lease that has expired or was deleted. It returns a [*NotHeldError]
	// when that lease is no longer there. It ignores Keep, which is for the
	// plugin host.
	Renew(ctx context.Context, r Request) error

	// Release ends the lease of Name, Owner and Token, and wakes the next
	// waiter. It must compare owner and token in the same step. With Keep > 0
	// it shortens the lease to Keep instead of deleting it, and never lengthens
	// it. It returns a [*NotHeldError] when the lease is not there; a repeated
	// call is harmless (L7). No lease has a zero Token: that is bad input, and an
	// error, before anything is sent or as for any other wrong token.
	Release(ctx context.Context, r Request) error

	// Withdraw undoes everything that owner's TryAcquire or Wait on name did, or
	// may still do. It deletes a grant whatever its token, gives up a place in
	// the queue and passes a wake-up on. Once it has returned nil, no grant of
	// that owner exists or can come: a TryAcquire that arrives later is refused
	// with ErrWithdrawn (K3). Finding nothing is no confirmation while the
	// request may still be on its way: refuse the owner in the store for at
	// least a minute, or follow the request on its own ordered connection, or
	// kill its connection and see it gone. Withdrawing an owner that the store
	// does not have returns nil.
	Withdraw(ctx context.Context, name, owner string) error

	// Inspect returns who holds name. A free lock is the zero
	// Holder and no error.
	Inspect(ctx context.Context, name string) (Holder, error)

	// Proclaim replaces the published value of the lease of Name, Owner and
	// Token, compared in the same step. It does not touch the TTL. It returns
	// a [*NotHeldError] when that lease is no longer there. A leader is the
	// holder of a lease with a value; a lock and an election of one name are the
	// same lock.
	Proclaim(ctx context.Context, r Request) error
}

// Backend is a connection to one store. Opening it does not wait for the
// store: a store that is down is no error until it is asked (K8).
type Backend interface {
	Lock
	// Check asks the store in one round trip whether it would serve requests:
	// reachable, credentials accepted, rights there, settings safe. A
	// successful Check also refreshes what Properties knows from the server.
	Check(ctx context.Context) error
	// Properties answers from memory.
	Properties() Properties
	// Close ends connections and goroutines, and returns after the last one.
	// It does not release leases. Calls after it return [ErrClosed].
	Close(ctx context.Context) error
}

// Waiter is an optional capability: wake-ups instead of polling.
type Waiter interface {
	// Wait enters Owner into the queue of Name, if it is not there yet, and
	// returns as soon as it is woken, or at once when Name is free. It also
	// returns after max, the time that the holder has left, a second at most: an
	// expiry wakes no waiter, so core asks then. A backend may look by itself
	// inside a Wait, for example once a second. The zero Grant is only a hint:
	// the caller asks TryAcquire (K4). No release that follows the caller's
	// refused TryAcquire may be missed. A release wakes one waiter, not all
	// (K5). The place in the queue outlives the call, until a grant, a
	// withdrawal, or some time without a Wait or TryAcquire: at least two
	// seconds, and about that long if the lock is free. If a store grants by
	// itself (see [Grant]) and other hosts have had the lock just now, core
	// calls Wait without a TryAcquire first. Wait then returns when the lease
	// that it found is over. When ctx ends it returns ctx.Err().
	Wait(ctx context.Context, r Request, max time.Duration) (Grant, error)
}

// Notifier is an optional capability of a store that can report a release
// but has no queue. Without a [Waiter], core asks for a lock when it hears
// of a release, and otherwise polls. All waiters ask at once, in no order.
type Notifier interface {
	// Notify calls emit as soon as it hears what happens to name, and again soon
	// after each lease of name that has ended by a release, a withdrawal or a
	// Break. No end that comes after the first call may be missed, but one call may
	// report several. An expiry needs no call, and a call too many costs the caller
	// one question. Calls are made one at a time; emit does not block. It returns
	// ctx.Err() when ctx ends, and the cause as soon as it may hear no more.
	Notify(ctx context.Context, name string, emit func()) error
}

// Grant is a grant that the store made to a waiter by itself, in the step that
// freed the lock or found it free: a release, a withdrawal, a Break, the
// request of another owner. The waiter need not ask, which saves one way (K4).
//
// The store makes it for a short time, so that a dead waiter costs no more,
// and only to an owner whose process it has heard of lately. The waiter does
// not know when the grant was made, but knows that it was not made before
// Sent. At Sent its process sent the last sign of life that the store had then
// seen. The waiter renews in time, beside its work, and the grant lives for
// the TTL from then on. A late Grant is only a hint to the waiter. A backend
// may always return the zero Grant instead: TryAcquire then reports the grant.
type Grant struct {
	// Token of the grant; zero for none.
	Token uint64
	// Sent is an instant before the grant was made, by this process's monotonic
	// clock.
	Sent time.Time
	// For is how long the store keeps the grant from when it was made: positive,
	// at most the TTL of the request and the FirstSpan of [Properties].
	For time.Duration
}

// Observer is an optional capability: the store pushes who holds a lock. If
// it is not declared, core inspects the lock ten times a second.
type Observer interface {
	// Observe calls emit with the present holder of name, and again after each
	// change of owner, token or value; the zero Holder means that the
	// lock is free. Calls are made one at a time, in the order of the changes, and
	// tokens never go back; changes that follow each other closely may be
	// merged into the newest. It returns ctx.Err() when ctx ends, and the
	// cause as soon as it can no longer see the store: also when a server does
	// not answer, for seconds at most.
	Observe(ctx context.Context, name string, emit func(Holder)) error
}

// Watcher is an optional capability: the backend pushes losses and outages.
type Watcher interface {
	// Watch calls emit for each notice until ctx ends, one at a time; emit
	// does not block. It returns ctx.Err(), or the cause when it cannot go on,
	// and is then called again.
	Watch(ctx context.Context, emit func(Notice)) error
}

// Batcher is an optional capability: many operations in one call.
type Batcher interface {
	// Batch does every operation as if it had been asked alone, in any order,
	// and returns one Result for each, at the same index. Operations of one
	// call that name the same lock are done in their order. One that must wait
	// inside the store (a row locked by others, say) must not hold up the rest.
	Batch(ctx context.Context, ops []Op) []Result
}

// Starter is an optional capability of a backend whose requests share round
// trips: an operation takes no goroutine while it is under way. The plugin uses
// it. The host does not see it, and the plugin client does not declare it.
type Starter interface {
	// Start does op as TryAcquire, Renew, Release or Withdraw would. It returns
	// without waiting and calls done once, from any goroutine; done does not
	// block. An operation that is not on its way yet when ctx ends is not sent.
	// One that is on its way may be answered after ctx ends, but within a bound.
	Start(ctx context.Context, op Op, done func(Result))
}

// Admin is an optional capability for operators.
type Admin interface {
	// List calls emit for each held lock whose name starts with prefix, in no
	// particular order, until emit returns false.
	List(ctx context.Context, prefix string, emit func(Holder) bool) error
	// Break ends the lease of name if its token is still token, whichever client owns
	// the lease; later tokens are higher. It returns a [*NotHeldError] otherwise.
	Break(ctx context.Context, name string, token uint64) error
}
