package driver

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Holder describes a held lock. The zero Holder means that the lock is free.
type Holder struct {
	Name  string
	Owner string // for a holder that is not a lockbench client: text that the store shows, or ""
	Label string
	Value []byte
	Token uint64 // zero if the holder is not a lockbench client
	// TTL is the time that the lease has left by the store's clock, rounded up to whole milliseconds.
	// TTL is negative if the end of the lease is not known.
	TTL time.Duration
	// Waiters is the number of owners in the store's queue, or -1 if it is unknown.
	Waiters int
}

// Held reports whether the lock is held.
func (h Holder) Held() bool { return h.Owner != "" || h.Token != 0 || h.TTL != 0 }

// The method by returns text that names the holder, or "" if the store only reserves the lock.
func (h Holder) by() string {
	switch {
	case h.Label != "":
		return " by " + strings.Map(visible, h.Label)
	case h.Owner != "":
		return " by owner " + strings.Map(visible, h.Owner)
	}
	return ""
}

// The function visible replaces characters that could control the terminal of a reader.
func visible(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return utf8.RuneError
}

// NoticeKind says what a [Notice] is about.
type NoticeKind int

const (
	// NoticeLost says that the lease of Name, Owner and Token is gone.
	NoticeLost NoticeKind = iota + 1
	// NoticeDown says that the plugin or the store cannot be reached.
	NoticeDown
	// NoticeUp says that the plugin or the store can be reached again. core then renews every lease,
	// except leases with the option NoRenew.
	NoticeUp
)

// Notice is a report of a [Watcher].
type Notice struct {
	Kind  NoticeKind
	Name  string // Name, Owner and Token of the lost lease
	Owner string
	Token uint64
	Err   error // the cause, for NoticeDown and NoticeLost
	// Plugin is true if the plugin process, not the store behind it, went down or came up.
	Plugin bool
}

// OpKind says which operation an [Op] is.
type OpKind int

// The operations that can be batched.
const (
	OpAcquire OpKind = iota + 1
	OpRenew
	OpRelease
	OpWithdraw // uses only Name and Owner
)

// Op is one operation of a batch.
type Op struct {
	Kind OpKind
	Request
}

// Result is the outcome of one [Op]. Token is set for a granted OpAcquire.
type Result struct {
	Token uint64
	Err   error
}

// Fencing says which failures a backend survives without giving out lower tokens.
type Fencing string

// The classes of fencing, strongest first. The comment of each class says when tokens never fall.
const (
	FencingStrict  Fencing = "strict"  // despite crash, failover and loss of data, by consensus or durable commits
	FencingDurable Fencing = "durable" // while the store keeps its data or, with TimedTokens, its clock
	FencingQuorum  Fencing = "quorum"  // while a quorum of nodes keeps its data and its clocks
)

// Scope says which hosts exclude each other from a lock.
type Scope string

// The scopes.
const (
	ScopeShared Scope = "shared" // every host that uses the same store
	ScopeHost   Scope = "host"   // only one host process: the store is inside its plugin
)

// Capability names an optional interface of a backend.
type Capability string

// The optional capabilities.
const (
	CapWaiter   Capability = "waiter"
	CapNotifier Capability = "notifier"
	CapObserver Capability = "observer"
	CapWatcher  Capability = "watcher"
	CapBatcher  Capability = "batcher"
	CapAdmin    Capability = "admin"
	CapStarter  Capability = "starter"
	// CapWithdraw is declared by every plugin process written in Go. In protocol
	// version 2, the plugin client refuses plugins without it.
	CapWithdraw Capability = "withdraw"
)

// Properties are the claims that a backend makes. The conformance suite checks these claims. If a
// property says that a rule does not apply to the backend, the suite does not check that rule.
type Properties struct {
	Name    string // name of the backend, such as "redis"
	Fencing Fencing
	Scope   Scope
	// TTLMin and TTLMax bound a lease's TTL, which must also be a multiple of
	// TTLStep (K7). All three are positive.
	TTLMin, TTLStep, TTLMax time.Duration
	// FIFO reports whether the store grants a lock to waiters of different hosts in the order of their
	// arrival. There are two exceptions: core may first hand the lock to waiters of the same host, and
	// a waiter whose plugin dies goes to the end of the queue.
	FIFO bool
	// FirstSpan is the longest time for which the store grants a lock to a waiter in its queue without
	// a TryAcquire (see [Grant]), if the waiter is near the store. A distant waiter's grant may last
	// some round trips longer, at most 2 s in all. FirstSpan is zero if the store only wakes waiters.
	FirstSpan time.Duration
	// TimedTokens reports whether tokens are times. Such a token is the store's time at the grant, in
	// microseconds since 1970, or the previous token plus one if that is higher. It shows operators
	// when the lock was granted.
	TimedTokens bool
	// Durability says in a few words what a grant survives, as read from the server, such
	// as "appendfsync everysec". Durability is "unknown" until the server was reached.
	Durability string
	// Server is the store's product and version, or "" until the store was reached.
	Server string
	// SurvivesPlugin reports whether leases outlive the plugin process (L8).
	SurvivesPlugin bool
	Capabilities   []Capability
}
