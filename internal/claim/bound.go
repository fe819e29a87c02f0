package claim

import (
	"cmp"
	"time"
)

// The bounds of claims are sums of these times. A time that core can set has core's default.
const (
	// Slack is added to the sum of the waits in a bound, because a process on a
	// busy machine may run late.
	Slack = 500 * time.Millisecond

	// CleanupBudget is the default of core.Options.CleanupBudget.
	CleanupBudget = time.Second
	// underWay is how long a call of core may go on after its ctx has ended: for
	// core's constant grace, and for up to two of core's ticks until core notices.
	underWay = 50*time.Millisecond + 2*10*time.Millisecond

	// AcquireGrace is the longest time that a call of Acquire or TryAcquire goes on
	// after its ctx has ended.
	AcquireGrace = underWay + CleanupBudget + Slack
	// ReleaseGrace is the same time for Release, which first waits for a renewal in progress.
	ReleaseGrace = CleanupBudget/2 + CleanupBudget + Slack
	// CloseGrace is the same time for Client.Close. It covers the releases, the wait for stuck
	// goroutines, and the end of the plugin. docs/operations.md states this time, too.
	CloseGrace = 2*CleanupBudget + time.Second

	// ProcessGone is the longest time that a plugin process outlives its host.
	// It covers 5 s without a connection to a host, and the release and the close after a death.
	ProcessGone = 5*time.Second + 2*time.Second + 2*Slack

	// askAgain is after how long a queue's first waiter asks again by itself (core: maxAsk).
	askAgain = time.Second
	// retry is the longest pause before a failed request is sent again (core: retryTo, maxRetry).
	retry = 500 * time.Millisecond
	// swallowed is the longest wait for a request without a reply and then for a new connection
	// without a reply: core's bound of a call, the time to clean up, and the dial_timeout.
	swallowed = 3*time.Second + CleanupBudget + 3*time.Second
)

// Terms are the particular promises of one backend. The zero value is for an unknown
// backend.
type Terms struct {
	// Exceptions are the claims that the backend, by its documentation, does not make.
	Exceptions []Exception
	// Turn is how long the store keeps a lock for a waiter that does not take it. 0 means
	// [Setting.FirstSpan] if the store grants locks to waiters in its queue, and otherwise 2 s.
	Turn time.Duration
	// ExpiresLate plus [Slack] is how long a lease may outlive its TTL, counted from the
	// end of the last interruption.
	ExpiresLate time.Duration
	// Reconnects is how long the backend may pause before it connects to a server again.
	Reconnects time.Duration
	// Forgets reports whether the store loses its data in a crash of its server.
	Forgets bool
}

// PluginBack returns the longest time that the host waits before it starts a failed
// plugin again. failures counts the failures in a row, without a life of 20 s between
// two of them. The time that the plugin then needs to start is not included.
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
	// FirstSpan is the plugin's Properties.FirstSpan. If the store grants a lock to a
	// waiter in its queue, the grant lasts only for this time until the waiter's first
	// renewal. FirstSpan is zero if the store only wakes waiters.
	FirstSpan time.Duration
	// TTL is the longest TTL of the leases concerned.
	TTL time.Duration
	// MaxTTL is how long a server does not vote after a restart or a loss of
	// data. It is zero if the server votes at once.
	MaxTTL time.Duration
	// Absent is how many waiters earlier in the queue cannot take the lock,
	// because they are frozen, dead or cut off.
	Absent int
	// Swallowed says that requests got no reply during the interruption,
	// not even an error.
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

// served is the longest time until every host is served after the last interruption,
// or until the next host is served after the death of a holder.
func (s Setting) served() time.Duration {
	d := s.TTL + s.lateExpiry() + retry + Slack + s.turns() + PluginBack(s.Failures) + s.Reconnects
	if s.Swallowed {
		d += swallowed
	}
	return d + s.MaxTTL + s.MaxTTL/100
}
