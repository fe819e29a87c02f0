package claim

import (
	"cmp"
	"time"
)

// The bounds of claims are sums of these numbers. Where package core has the number, it is its default.
const (
	// Slack is what a bound adds to the sum of waits, for a process on a busy
	// machine.
	Slack = 500 * time.Millisecond

	// CleanupBudget is the default of core.Options.CleanupBudget.
	CleanupBudget = time.Second
	// underWay is core's grace, in which a call may still answer after its ctx has
	// ended, plus two of core's ticks, by which the end of the call may be late.
	underWay = 50*time.Millisecond + 2*10*time.Millisecond

	// AcquireGrace is the longest time from the end of its ctx until an Acquire
	// or a TryAcquire returns.
	AcquireGrace = underWay + CleanupBudget + Slack
	// ReleaseGrace is the same for Release, which first waits for a renewal in progress.
	ReleaseGrace = CleanupBudget/2 + CleanupBudget + Slack
	// CloseGrace is the same bound for Client.Close. It covers the releases,
	// stuck goroutines, and the plugin's end. docs/operations.md states it, too.
	CloseGrace = 2*CleanupBudget + time.Second

	// ProcessGone is the longest time that a plugin process outlives its host.
	// The process waits 5 s without a host, then releases and closes.
	ProcessGone = 5*time.Second + 2*time.Second + 2*Slack

	// askAgain is how often a queue's first waiter asks, whether or not it is woken (core: maxAsk).
	askAgain = time.Second
	// retry is the longest pause between two tries (core: retryTo, maxRetry).
	retry = 500 * time.Millisecond
	// swallowed is the longest wait for a request and then a connection that get no
	// reply. It is the sum of core's bound of a call, the clean-up, and the dial_timeout.
	swallowed = 3*time.Second + CleanupBudget + 3*time.Second
)

// Terms are the particular promises of one backend. The zero value is for an unknown
// backend.
type Terms struct {
	// Exceptions are the claims that the backend, by its documentation, does not make.
	Exceptions []Exception
	// Turn is how long a lock is kept for a waiter that does not take it. 0 means
	// [Setting.FirstSpan] if the store itself grants locks to waiters, and 2 s otherwise.
	Turn time.Duration
	// ExpiresLate is added to [Slack]. A lease may outlive its TTL by the sum,
	// counted from the end of the last interruption.
	ExpiresLate time.Duration
	// Reconnects is the longest pause of a backend that reconnects by itself.
	Reconnects time.Duration
	// Forgets reports whether the store loses its data in a crash of its server.
	Forgets bool
}

// PluginBack returns the longest time that the host waits before it starts a
// plugin that has failed that many times in a row and has never lived for 20 s
// in between. The duration of the start itself is not included.
func PluginBack(failures int) time.Duration {
	switch {
	case failures <= 1:
		return 0
	case failures > 8:
		return 22500 * time.Millisecond
	}
	pause := min(50*time.Millisecond<<(failures-2), 2*time.Second)
	return pause * 3 / 2
}

// Setting has the values that the bound of a claim depends on.
type Setting struct {
	Terms
	// FirstSpan is the FirstSpan of the plugin's Properties: how long a grant
	// lasts that the store itself makes to a waiter. The waiter's first renewal
	// must be back by then. FirstSpan is zero if the store only wakes waiters.
	FirstSpan time.Duration
	// TTL is the longest TTL of the leases concerned.
	TTL time.Duration
	// MaxTTL is how long a server does not vote after a restart or a loss of
	// data. It is zero if the server votes at once.
	MaxTTL time.Duration
	// Absent is how many waiters ahead of this one cannot take the lock,
	// because they are frozen, dead or cut off.
	Absent int
	// Swallowed says that the interruption left requests without a reply
	// instead of an error.
	Swallowed bool
	// Failures is how many times in a row the plugin has died.
	Failures int
}

func (s Setting) turns() time.Duration {
	return time.Duration(s.Absent) * cmp.Or(s.Turn, s.FirstSpan, 2*time.Second)
}

// lateExpiry is by how much a lease may outlive its TTL, counted from the end
// of the last interruption.
func (s Setting) lateExpiry() time.Duration { return Slack + s.ExpiresLate }

// served is the longest time from the end of the last interruption until every
// host is served, and from the death of a holder until the next host is served.
func (s Setting) served() time.Duration {
	d := s.TTL + s.lateExpiry() + retry + Slack + s.turns() + PluginBack(s.Failures) + s.Reconnects
	if s.Swallowed {
		d += swallowed
	}
	return d + s.MaxTTL + s.MaxTTL/100
}
