package claim

import (
	"slices"
	"time"
)

// Rule is the name of one promise that lockbench checks in a run.
type Rule string

// These rules say what never happens.
const (
	// Overlap says that no two holds of one lock overlap. A hold begins when the call that acquired
	// the lock returns. It ends when its release is sent or, without a release, when its lease was
	// last found valid.
	Overlap Rule = "overlap"
	// Token says that a grant has a higher token than every earlier grant of the lock, even an ended
	// one. A grant is earlier if its call returned before the later grant's call began, or if its hold
	// was over when that call returned. The rule does not apply to libraries without tokens.
	Token Rule = "token"
	// Linear says that the acquires, renewals, releases and expiries of one lock can be put in
	// one order. In this order each operation takes effect between its call and its return,
	// only the holder renews, and no client acquires a lock that another client holds.
	Linear Rule = "linearizability"
	// Renewal says that the store confirms no renewal of an old lease. A lease is old if a
	// later grant of the same lock had returned before the renewal was sent. The rule holds
	// even for a store that may grant a lock while an earlier lease is valid, because the
	// earlier holder must then lose its lease with its next renewal.
	Renewal Rule = "stale renewal"
	// Effect says that a resource that checks tokens accepts no write if it has already accepted a
	// write with a higher token.
	Effect Rule = "effect"
	// Signal says that a holder that loses its lease learns of the loss before the
	// next grant returns. The rule applies only to holders whose process could run.
	Signal Rule = "lost signal"
	// Orphaned says that a lock becomes free within the rule's bound after its holder has released the
	// lock, closed its client or died.
	Orphaned Rule = "orphaned"
	// Deadline says that no call outlasts its ctx by more than a bound, such as [AcquireGrace].
	Deadline Rule = "deadline"
	// Leaked says that no process, file or key of a host outlasts the host by more than a bound.
	Leaked Rule = "leaked"
	// GaveUp says that a client to which the store has granted any lock does not give up early. It
	// waits for a lock until its ctx ends. It tries to release a lock until its ctx or the lease ends.
	GaveUp Rule = "gave up"
	// Callback says that a client does not release a lock while a function still runs under that lock.
	Callback Rule = "callback"
	// Crash says that no host process crashes or hangs.
	Crash Rule = "crash"
)

// These rules say what must happen.
const (
	// Survives says that no lease is lost because of an interruption shorter than the rule's bound.
	Survives Rule = "survives"
	// Standby says that a new leader leads within the rule's bound after the old leader is gone.
	Standby Rule = "standby"
	// Woken says that a waiter gets a free lock within the rule's bound if no interruption happens.
	Woken Rule = "woken"
	// Granted says that every lock that a host wants is granted within the rule's bound. The bound
	// counts from the end of the last interruption.
	Granted Rule = "granted"
)

// Rules lists all rules, in the order of docs/safety.md.
var Rules = []Rule{
	Overlap, Token, Linear, Renewal, Effect, Signal, Orphaned, Deadline, Leaked, GaveUp, Callback, Crash, Survives, Standby, Woken, Granted,
}

// Within returns the bound of a rule. For most rules the bound is the longest time that a forbidden
// state may last, or the time within which an event must happen. For [Survives] it is the longest
// interruption that a lease survives. Within returns 0 for a rule whose bound does not depend on s.
func (r Rule) Within(s Setting) time.Duration {
	switch r {
	case Orphaned:
		return s.TTL + s.lateExpiry()
	case Survives:
		return max(0, s.TTL/2-Slack)
	case Woken:
		return askAgain + Slack + s.turns()
	case Standby, Granted:
		return s.served()
	}
	return 0
}

// Condition is an event or a setting that may excuse a backend from some rules.
type Condition string

// docs/safety.md explains each condition.
const (
	// What happens to data.
	DataLost        Condition = "data-lost"
	WritesLost      Condition = "writes-lost"
	OldData         Condition = "old-data-restored"
	ReplicaPromoted Condition = "replica-promoted"
	FailedOver      Condition = "failed-over"
	Evicting        Condition = "evicting"
	EvictionSeen    Condition = "eviction-seen"
	EndedByHand     Condition = "ended-by-hand"
	// What happens to servers.
	Restarted      Condition = "restarted"
	LeaderPaused   Condition = "leader-paused"
	SlotMoving     Condition = "slot-moving"
	NoSpareReplica Condition = "no-spare-replica"
	SeveralWriters Condition = "several-writers"
	TwoStores      Condition = "two-stores"
	// What happens to clocks.
	ClockForward Condition = "clock-forward"
	ClockBack    Condition = "clock-back"
	// What happens to hosts. These conditions excuse only the host that they happen to.
	HostStopped Condition = "host-stopped"
	PluginDied  Condition = "plugin-died"
	// Settings.
	QuarantineOff  Condition = "quarantine-off"
	ReplicasWaited Condition = "replicas-waited"
)

var Conditions = []Condition{
	DataLost, WritesLost, OldData, ReplicaPromoted, FailedOver, Evicting, EvictionSeen, EndedByHand,
	Restarted, LeaderPaused, SlotMoving, NoSpareReplica, SeveralWriters, TwoStores,
	ClockForward, ClockBack, HostStopped, PluginDied, QuarantineOff, ReplicasWaited,
}

// Exception lists rules that a backend's documentation does not promise under some conditions.
type Exception struct {
	Rules []Rule `json:"rules"`
	// The exception applies only if all conditions in All are met.
	// If Any is not empty, at least one condition in Any must be met, too.
	All []Condition `json:"all"`
	Any []Condition `json:"any,omitempty"`
	// Why explains how two hosts can hold the lock at once, if the exception allows that. It is one or
	// more sentences, and begins with a lower-case letter because verdicts quote it.
	Why string `json:"why,omitempty"`
}

// Exempt returns the exception that excuses the backend from the rule under the conditions in made.
// If several exceptions do so, it returns that with the most conditions. If none does, ok is false.
//
// Even if Overlap is exempt, a resource that checks tokens is safe, unless Token is exempt, too.
func (t Terms) Exempt(rule Rule, made []Condition) (e Exception, ok bool) {
	for _, known := range slices.Concat(t.Exceptions, everywhere) {
		if slices.Contains(known.Rules, rule) && known.met(made) && (!ok || known.asks() > e.asks()) {
			e, ok = known, true
		}
	}
	return e, ok
}

func (e Exception) met(made []Condition) bool {
	has := func(c Condition) bool { return slices.Contains(made, c) }
	for _, c := range e.All {
		if !has(c) {
			return false
		}
	}
	return len(e.Any) == 0 || slices.ContainsFunc(e.Any, has)
}

func (e Exception) asks() int { return len(e.All) + min(1, len(e.Any)) }

// Twice returns the rules that fail when a store grants a lock while an earlier lease on that lock
// is valid, and the earlier holder then loses its lease.
func Twice(more ...Rule) []Rule { return append([]Rule{Overlap, Linear, Signal, Survives}, more...) }

// TwiceForLong returns the rules that fail when a store grants a lock during an earlier lease, and
// may then forget the later grant and renew the earlier lease.
func TwiceForLong(more ...Rule) []Rule { return Twice(append(more, Renewal)...) }

// Late returns the rules that fail when a store grants nothing for a while.
func Late(more ...Rule) []Rule { return append([]Rule{Standby, Woken, Granted}, more...) }

// everywhere lists the exceptions that apply to all backends.
var everywhere = []Exception{
	{
		Rules: Twice(), All: []Condition{EndedByHand},
		Why: "the holder learns of it with its next renewal, or by a watch; the next grant has a higher token",
	},
	{
		Rules: TwiceForLong(Token), All: []Condition{TwoStores},
		Why: "one host may use the first and another host the second, and neither can notice this. " +
			"A host that reaches both warns, its Check fails, and it uses one at most",
	},
	{Rules: Late(Survives, Deadline), All: []Condition{HostStopped}},
}
