package claim

import (
	"cmp"
	"time"
)

// The bounds of claims are computed from these numbers. Numbers of core are its defaults.
const (
	// Slack is the time that a running process on a busy machine needs beyond the
	// counted times.
	Slack = 500 * time.Millisecond

	// CleanupBudget is the default of core.Options.CleanupBudget.
	CleanupBudget = time.Second
	// underWay is how long a call may still answer when its ctx has ended, and by
	// how much its end may be late (core: grace, tick).
	underWay = 50*time.Millisecond + 2*10*time.Millisecond

	// AcquireGrace is how long after the end of its ctx an Acquire or a
	// TryAcquire returns.
	AcquireGrace = underWay + CleanupBudget + Slack
	// ReleaseGrace is the same for Release, which drains a renewal first.
	ReleaseGrace = CleanupBudget/2 + CleanupBudget + Slack
	// CloseGrace is the same for Client.Close. It covers the releases, stuck
	// goroutines, and the plugin's end. docs/operations.md says it, too.
	CloseGrace = 2*CleanupBudget + time.Second

	// ProcessGone is the longest time that a plugin process outlives its host. It
	// waits 5 s without a host, then it releases and closes.
	ProcessGone = 5*time.Second + 2*time.Second + 2*Slack

	// askAgain is how often the first in a queue asks, woken or not (core: maxAsk).
	askAgain = time.Second
	// retry is the longest pause between two tries (core: retryTo, maxRetry).
	retry = 500 * time.Millisecond
	// swallowed is the wait for a request and a connection that get no reply: core's
	// bound of a call, its withdrawal, the dial_timeout.
	swallowed = 3*time.Second + CleanupBudget + 3*time.Second
)

// Terms are the particular promises of one backend. The zero value is for an unknown
// backend.
type Terms struct {
	// Exceptions are the claims that the backend does not make, by its documentation.
	Exceptions []Exception
	// Turn is how long a lock is kept for a waiter that does not come. 0 stands for
	// the first span of a store that itself grants to waiters, and for 2 s otherwise.
	Turn time.Duration
	// ExpiresLate is by how much more than [Slack] a lease may outlive its TTL,
	// counted from the end of the last interruption.
	ExpiresLate time.Duration
	// Reconnects is the longest pause of a backend that reconnects by itself.
	Reconnects time.Duration
	// Forgets reports whether the store loses its data in a crash of its server.
	Forgets bool
}

// PluginBack is the longest wait of the host before it starts a plugin that has
// failed that many times in a row, without living for 20 s once. The start itself
// comes on top.
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
	// FirstSpan is the FirstSpan of the plugin's Properties. It is how long a grant
	// lasts that the store itself makes to a waiter, whose first renewal must be back by
	// then; zero where the store only wakes waiters.
	FirstSpan time.Duration
	// TTL is the longest of the leases concerned.
	TTL time.Duration
	// MaxTTL is how long a server does not vote after a restart or a loss of data;
	// zero where it votes at once.
	MaxTTL time.Duration
	// Absent is how many waiters before this one cannot come, because they are
	// frozen, dead or cut off.
	Absent int
	// Swallowed says that the interruption left requests without a reply instead of
	// refusing them.
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

// served is how long after the end of the last interruption every host is served, and
// how long after the death of a holder the next one is.
func (s Setting) served() time.Duration {
	d := s.TTL + s.lateExpiry() + retry + Slack + s.turns() + PluginBack(s.Failures) + s.Reconnects
	if s.Swallowed {
		d += swallowed
	}
	return d + s.MaxTTL + s.MaxTTL/100
}
