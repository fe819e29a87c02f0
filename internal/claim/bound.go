package claim

import (
	"cmp"
	"time"
)

// The numbers that claims are made of. Those of core are its defaults.
const (
	// Slack is what a process that runs, on a machine that is busy, needs beside
	// what is counted.
	Slack = 500 * time.Millisecond

	// CleanupBudget is the default of core.Options.CleanupBudget.
	CleanupBudget = time.Second
	// underWay is how long a call may still answer when its ctx has ended, and by
	// how much its end may be late (core: grace, tick).
	underWay = 50*time.Millisecond + 2*10*time.Millisecond

	// AcquireGrace is how long after the end of its ctx an Acquire or a
	// TryAcquire returns.
	AcquireGrace = underWay + CleanupBudget + Slack
	// ReleaseGrace is the same of Release, which drains a renewal first.
	ReleaseGrace = CleanupBudget/2 + CleanupBudget + Slack
	// CloseGrace is the same of Client.Close: the releases, goroutines that are
	// stuck, and the plugin's end. docs/operations.md says it, too.
	CloseGrace = 2*CleanupBudget + time.Second

	// ProcessGone is how long after its host a plugin process is there at most:
	// nobody can reach it for 5 s, then it releases and closes.
	ProcessGone = 5*time.Second + 2*time.Second + 2*Slack

	// askAgain is how often the first in a queue asks, woken or not (core: maxAsk).
	askAgain = time.Second
	// retry is the longest pause between two tries (core: retryTo, maxRetry).
	retry = 500 * time.Millisecond
	// swallowed is how long a request and a connection that got no answer are
	// waited for: core's bound of a call, its withdrawal, the dial_timeout.
	swallowed = 3*time.Second + CleanupBudget + 3*time.Second
)

// Terms are what is particular to the promises of one backend. The zero value is
// that of one of which nothing is known.
type Terms struct {
	// Exceptions are the claims that it does not make, by its documentation.
	Exceptions []Exception
	// Turn is how long a lock is kept for a waiter that does not come; 0 stands for
	// the first span of a store that grants, and else for 2 s.
	Turn time.Duration
	// ExpiresLate is by how much more than [Slack] a lease may outlive its TTL,
	// counted from the end of the last interruption.
	ExpiresLate time.Duration
	// Reconnects is the longest pause of a backend that connects again itself.
	Reconnects time.Duration
	// Forgets reports whether it keeps no data over a crash of its server.
	Forgets bool
}

// PluginBack is how long the host waits at most before it starts a plugin that
// has failed so many times in a row, none of which it has lived for 20 s. The
// start itself comes on top.
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

// Setting is what the bound of a claim depends on.
type Setting struct {
	Terms
	// FirstSpan is that of the plugin's Properties: for how long the store itself grants
	// a lock to a waiter, whose first renewal has to be back by then; zero where it only
	// wakes waiters.
	FirstSpan time.Duration
	// TTL is the longest of the leases concerned.
	TTL time.Duration
	// MaxTTL is how long servers do not vote that were restarted or have lost their
	// data; zero where they do.
	MaxTTL time.Duration
	// Absent is how many waiters stand before this one that cannot come: frozen,
	// dead, cut off.
	Absent int
	// Swallowed says that the interruption left requests without an answer
	// instead of refusing them.
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

// served is how long after the end of the last interruption everybody is
// served, and after the death of a holder the next one is.
func (s Setting) served() time.Duration {
	d := s.TTL + s.lateExpiry() + retry + Slack + s.turns() + PluginBack(s.Failures) + s.Reconnects
	if s.Swallowed {
		d += swallowed
	}
	return d + s.MaxTTL + s.MaxTTL/100
}
