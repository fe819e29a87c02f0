// Package claim is what the backends promise, in one place: what never happens,
// what happens within which time, and under which conditions that does not
// hold, each with its source.
//
// What is particular to a backend, its exceptions among that, are its [Terms], in
// the file of its name. Package check judges by both, and what docs/safety.md and
// docs/backends.md say about it is written from both. Whatever is not excepted is promised. The package imports the
// standard library only.
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
	// which one ended before the other was asked for. It is not asked of fencing
	// class none.
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

// Claim is one promise.
type Claim struct {
	Rule Rule
	Must bool   // it must happen; else it must never
	Says string // what is promised, for people
	// Shows is what a violation points to.
	Shows string
	// Time is what the bound of [Claim.Within] is, for people, "" where there
	// is none, and From how that number comes about. The [Remark]s of backends
	// go on with both.
	Time, From string
	within     func(Setting) time.Duration
}

// Within is the bound of the claim: for how long at most what must never
// happen may last, within which time what must happen does, and for [Survives]
// the interruption that a lease bears. It is zero where the claim has none.
func (c Claim) Within(s Setting) time.Duration {
	if c.within == nil {
		return 0
	}
	return c.within(s)
}

// Of returns the claim of one rule; the zero Claim if there is none.
func Of(rule Rule) Claim {
	for _, c := range claims {
		if c.Rule == rule {
			return c
		}
	}
	return Claim{}
}

var claims = []Claim{
	{
		Rule:  Overlap,
		Says:  "nobody finds its lease valid after the next grant has come back",
		Shows: "two holders at once",
	},
	{
		Rule:  Token,
		Says:  "a later grant of the store has a higher token than each before it, and a hand-over inside a host a higher one than the last",
		Shows: "a counter that was lost",
	},
	{
		Rule:  Linear,
		Says:  "acquires, renewals, releases and expiries of one lock fit into one order, each between its call and its return; what may have happened at any later time, or never, stays open [7]",
		Shows: "a grant before the lease could expire, a renewal for somebody who no longer held it",
	},
	{
		Rule:  Renewal,
		Says:  "no renewal is confirmed that was sent after the next grant came back",
		Shows: "a lease that comes back",
	},
	{
		Rule:  Effect,
		Says:  "behind a guard no write comes after one with a higher token",
		Shows: "a guard that lets it pass",
	},
	{
		Rule:  Signal,
		Says:  "a holder that could run learned of the loss before the next grant came back; one that was stopped finds its lease over in its first look, and is told soon after it goes on",
		Shows: "a warning that comes too late",
		Time:  "50 ms after it goes on", From: "rule L3 of `core/driver`",
		within: func(Setting) time.Duration { return ResumeLag },
	},
	{
		Rule:   Orphaned,
		Says:   "no lock stays taken without its holder: it is free when Release or Close has returned without an error, and soon after the death of its host or the end of the last interruption, whichever is later",
		Shows:  "a grant that nobody knows of and somebody renews",
		Time:   "the TTL and 0.5 s",
		From:   "a plugin that lives releases at once, for a second; else the lease runs out. AtLeast, and the Policy of a host, keep it for as long as they say",
		within: func(s Setting) time.Duration { return s.TTL + s.lateExpiry() },
	},
	{
		Rule:  Deadline,
		Says:  "Acquire, TryAcquire, Release and Close return soon after their ctx has ended",
		Shows: "a call that hangs",
		Time:  "1.6 s, Release 2 s, Close 3 s",
		From: "a call under way may still answer for 50 ms, and is withdrawn within CleanupBudget (1 s); Release drains a renewal " +
			"for half of that first; Close releases for 1 s, waits 1 s for goroutines and 1 s for the plugin's end",
		within: func(Setting) time.Duration { return CloseGrace },
	},
	{
		Rule:  Leaked,
		Says:  "nothing is left of a host that was closed or has died: no process, directory, descriptor, connection or key",
		Shows: "a plugin without a host, a heap that grows",
		Time:  "a process 8 s, a key 2 min",
		From: "a plugin that nobody can reach ends after 5 s, having released for 1 s and closed for 1 s; the store refuses a withdrawn owner for a minute or a little more. " +
			"The directory of a host that was killed is removed by the next host on its machine, a minute later. What stays is one counter for each prefix",
		within: func(Setting) time.Duration { return KeysGone },
	},
	{
		Rule:  GaveUp,
		Says:  "whoever waits goes on waiting until its ctx ends, and a Release goes on trying, if the store has served its client once",
		Shows: "a standby that is gone after a failover, a lock that stays after an outage",
	},
	{
		Rule:  Callback,
		Says:  "no lock is released while a function runs under it: Do, TryDo and Run release when their function has returned: Close tells it to end, and waits",
		Shows: "a lock that another host has while the function under it runs",
	},
	{
		Rule:  Crash,
		Says:  "no host process crashes or blocks because of a plugin, a store or a network",
		Shows: "a panic, a deadlock",
	},
	{
		Rule: Survives, Must: true,
		Says:  "a lease lives through an interruption (of the store, of the network, by the death of its plugin) that is shorter than half of its TTL less 0.5 s",
		Shows: "a false loss",
		Time:  "TTL / 2 - 0.5 s",
		From: "renewed every third of the TTL, it has two thirds left when the store goes away, and one sixth and 0.5 s when it comes back: " +
			"a call that is then under way gets a third of that, the pause after it is an eighth of the rest, and the next call renews it. " +
			"An election is part of the interruption",
		within: func(s Setting) time.Duration { return max(0, s.TTL/2-Slack) },
	},
	{
		Rule: Standby, Must: true,
		Says:  "when a leader is gone a standby leads soon after its lease or the interruption is over, whichever is later",
		Shows: "nobody leads",
		Time:  "as granted", From: "as granted: a leader is the holder of a lock",
		within: Setting.served,
	},
	{
		Rule: Woken, Must: true,
		Says:   "a waiter gets a free lock soon, while nothing is interrupted",
		Shows:  "a wake-up that was lost",
		Time:   "1.5 s, and one turn for each waiter before it that does not come",
		From:   "the first in the queue asks again each second, woken or not; a turn is 2 s",
		within: func(s Setting) time.Duration { return askAgain + Slack + s.turns() },
	},
	{
		Rule: Granted, Must: true,
		Says:  "everything that is wanted is granted soon after the last interruption, if its holders release it",
		Shows: "a lock that stays away",
		Time: "what a lease that was left needs to expire, and 1 s; 7 s more where requests were swallowed and not refused; " +
			"a turn for each waiter that does not come",
		From: "pauses between tries are at most 0.5 s; a request that was swallowed is given up after 3 s, " +
			"withdrawn for 1 s, and a connection is made for 3 s. A plugin that has failed often is started again after up to 3 s, after the eighth time in a row up to 22.5 s",
		within: Setting.served,
	},
}
