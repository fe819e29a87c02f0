package driver

import "time"

// Holder describes a held lock. The zero Holder means that it is free.
type Holder struct {
	Name  string
	Owner string // of a foreign holder the text that the store shows, or empty
	Label string
	Value []byte
	Token uint64 // zero for a foreign holder, which has none
	// TTL is the rest of the lease by the store's clock, rounded up to whole
	// milliseconds; negative when the store knows no end.
	TTL time.Duration
	// Waiters is how many owners wait in the store's queue; -1 when unknown.
	Waiters int
}

// Held reports whether the lock is held.
func (h Holder) Held() bool { return h.Owner != "" || h.Token != 0 || h.TTL != 0 }

// by names the holder in an error: no client, if the store keeps the lock for the
// next in its queue.
func (h Holder) by() string {
	switch {
	case h.Label != "":
		return " by " + h.Label
	case h.Owner != "":
		return " by owner " + h.Owner
	}
	return ""
}

// NoticeKind says what a [Notice] is about.
type NoticeKind int

const (
	// NoticeLost says that the lease of Name, Owner and Token is gone.
	NoticeLost NoticeKind = iota + 1
	// NoticeDown says that the plugin or the store cannot be reached.
	NoticeDown
	// NoticeUp says that the plugin or the store can be reached again: core renews every lease.
	NoticeUp
)

// Notice is a report that a [Watcher] pushes.
type Notice struct {
	Kind  NoticeKind
	Name  string // of the lost lease, as are Owner and Token
	Owner string
	Token uint64
	Err   error // the cause, for Down and Lost
	// Plugin reports whether it is the plugin process that went down or came up,
	// not the store behind it.
	Plugin bool
}

// OpKind says which operation an [Op] is.
type OpKind int

// The operations that can be batched.
const (
	OpAcquire OpKind = iota + 1
	OpRenew
	OpRelease
	OpWithdraw // reads Name and Owner
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

// Fencing says how far a backend's tokens can be trusted to rise.
type Fencing string

// The classes of fencing, strongest first.
const (
	FencingStrict  Fencing = "strict"  // over crash, failover and new data, by consensus or durable commits
	FencingDurable Fencing = "durable" // as durable as the store's data, or its clock where TimedTokens
	FencingQuorum  Fencing = "quorum"  // while a quorum keeps its data and its clocks
)

// Scope says which hosts exclude each other.
type Scope string

// The scopes.
const (
	ScopeShared Scope = "shared" // every host that uses the same store
	ScopeHost   Scope = "host"   // one host process: the store lives in its plugin
)

// Capability names an interface that a backend may have or not.
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
	// CapWithdraw is declared by a plugin process written in Go, for its own
	// client, which refuses one that lacks it.
	CapWithdraw Capability = "withdraw"
)

// Properties are the claims that a backend makes. The conformance suite holds
// it to them, and a rule that does not apply is excused by the property that
// says so.
type Properties struct {
	Name    string // of the backend: "redis"
	Fencing Fencing
	Scope   Scope
	// TTLMin, TTLStep and TTLMax bound a lease's TTL; it must be a multiple of
	// TTLStep (K7). All are positive.
	TTLMin, TTLStep, TTLMax time.Duration
	// FIFO reports whether the store grants waiters of different hosts in their
	// order. core also hands a lock over inside a host for a while, and a waiter
	// whose plugin dies starts again at the end.
	FIFO bool
	// FirstSpan is the longest time for which the store itself grants a lock to
	// a waiter that is near ([Grant] For). A distant waiter gets some round
	// trips more, 2 s at most. It is zero if the store only wakes waiters.
	FirstSpan time.Duration
	// TimedTokens reports whether a token is the store's clock at its grant, in
	// microseconds since 1970, or one above the last token if that is higher.
	// Operators read from a token since when a lock is held.
	TimedTokens bool
	// Durability says in a few words what a grant survives, as read from the
	// server: "appendfsync everysec"; "unknown" until it was reached.
	Durability string
	// Server is the store's product and version, "" until it was reached.
	Server string
	// SurvivesPlugin reports whether leases outlive the plugin process (L8).
	SurvivesPlugin bool
	Capabilities   []Capability
}
