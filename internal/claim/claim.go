package claim

import "time"

// Rule names what is promised.
type Rule string

// The rules of what never happens.
const (
	// Overlap: of one name, the times from a grant's return to the sending of its
	// release do not overlap.
	Overlap Rule = "overlap"
	// Token: of two grants of one name of which one came back before the other
	// was asked for, the later has the higher token. That covers the grants of
	// which one ended before the other was asked for. It is not asked of a
	// baseline without tokens.
	Token Rule = "token"
	// Linear: the acquires, renewals, releases and expiries of one name can be put
	// in one order, in which each takes effect between its call and its return and
	// only the holder renews, and nobody acquires while another one holds.
	Linear Rule = "linearizability"
	// Renewal: no renewal is confirmed that was sent after a later grant of the same
	// name came back. It is exact, and judged also where a store may grant a lock
	// while a lease of it is valid: the first holder then loses its lease with its
	// next renewal.
	Renewal Rule = "stale renewal"
	// Effect: a resource that checks tokens accepts no write after one with a
	// higher token.
	Effect Rule = "effect"
	// Signal: a holder that could run has learned of the loss before the next
	// grant came back.
	Signal Rule = "lost signal"
	// Orphaned: no lock is taken for longer than the bound after its holder.
	Orphaned Rule = "orphaned"
	// Deadline: no call goes on for longer than the bound after its ctx.
	Deadline Rule = "deadline"
	// Leaked: of a host that is over nothing is there for longer than the bound.
	Leaked Rule = "leaked"
	// GaveUp: whoever was served once waits, or tries to release, until its ctx
	// ends.
	GaveUp Rule = "gave up"
	// Callback: no lock is released while a function runs under it.
	Callback Rule = "callback"
	// Crash: no host process crashes or blocks.
	Crash Rule = "crash"
)

// The rules of what must happen.
const (
	// Survives: no lease is lost to an interruption shorter than the bound.
	Survives Rule = "survives"
	// Standby: somebody leads within the bound after a leader is gone.
	Standby Rule = "standby"
	// Woken: a waiter gets a free lock within the bound.
	Woken Rule = "woken"
	// Granted: everything wanted is granted within the bound after the last
	// interruption.
	Granted Rule = "granted"
)

// Within is the bound of a rule: for how long at most what must never happen may
// last, within which time what must happen does, and for [Survives] the
// interruption that a lease bears. It is zero where the rule has none that depends
// on a setting.
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
