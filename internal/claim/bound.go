package claim

import (
	"cmp"
	"time"
)

// The bounds of promises are sums of these times. They assume the default values of core's options.
const (
	// Slack is added to the bounds, because a process on a busy machine may run late.
	Slack = 500 * time.Millisecond

	// CleanupBudget is the default of core.Options.CleanupBudget.
	CleanupBudget = time.Second
	// underWay is the longest time for which a call of core waits for the store after its ctx has
	// ended. Package core waits 50 ms, and may notice the end of ctx up to 20 ms (two ticks) late.
	underWay = 50*time.Millisecond + 2*10*time.Millisecond

	// AcquireGrace is the longest time that a call of Acquire or TryAcquire goes on
	// after its ctx has ended.
	AcquireGrace = underWay + CleanupBudget + Slack
	// ReleaseGrace is the longest time that Release goes on after its ctx has ended. It includes the
	// time for which Release waits for a renewal in progress.
	ReleaseGrace = CleanupBudget/2 + CleanupBudget + Slack
	// CloseGrace is the longest time that Client.Close goes on after its ctx has ended. It includes
	// releases, a wait for stuck goroutines, and the plugin's end. docs/operations.md names this time.
	CloseGrace = 2*CleanupBudget + time.Second

	// ProcessGone is the longest time that a plugin process outlives its host: 5 s in which it
	// waits for a new connection, and the time to release the leases and to close the backend.
	ProcessGone = 5*time.Second + 2*time.Second + 2*Slack

	// If a queue's first waiter is not woken, it asks the store again after askAgain (core: maxAsk).
	askAgain = time.Second
	// retry is the longest pause before core sends a failed request again (core: retryTo, maxRetry).
	retry = 500 * time.Millisecond
	// swallowed is the longest wait of a client that gets no reply on two connections in a row. It is
	// the sum of core's limit for a call, CleanupBudget and dial_timeout.
	swallowed = 3*time.Second + CleanupBudget + 3*time.Second
)

// Terms say how the promises for one backend differ from the promises for all backends. The zero
// value is for an unknown backend.
type Terms struct {
	// Exceptions are the cases in which the backend's documentation does not promise a rule.
	Exceptions []Exception
	// Turn is the time for which the store reserves a free lock for a waiter that does not take it. 0
	// means [Setting.FirstSpan] or, if the store does not grant locks to waiters in its queue, 2 s.
	Turn time.Duration
	// ExpiresLate plus [Slack] is the longest time by which a lease may outlive its TTL. After an
	// interruption, the TTL counts from the interruption's end.
	ExpiresLate time.Duration
	// Reconnects is the longest pause before the backend tries again to connect to a server.
	Reconnects time.Duration
	// Forgets reports whether the store loses its data in a crash of its server.
	Forgets bool
}

// PluginBack returns the longest time that the host waits before it starts a failed plugin again.
// The parameter failures is the number of failures in a row, with runs of less than 20 s between
// two failures. The result does not include the time that the plugin needs to start.
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

// Setting has the values on which the bound of a [Rule] depends.
type Setting struct {
	Terms
	// FirstSpan is the plugin's Properties.FirstSpan. A grant that the store makes to a waiter in its
	// queue ends after this time, unless the waiter renews it. FirstSpan is zero if the store only
	// wakes waiters.
	FirstSpan time.Duration
	// TTL is the longest TTL of the leases that the bound is for.
	TTL time.Duration
	// MaxTTL is the longest time for which a server that was restarted, or
	// lost its data, does not vote. It is zero if the server votes at once.
	MaxTTL time.Duration
	// Absent is the number of waiters that may be first in the queue but cannot take the lock, because
	// they are frozen, dead or cut off.
	Absent int
	// Swallowed is true if requests got no reply at all during the interruption, not even an error.
	Swallowed bool
	// Failures is the number of times in a row that the plugin has died.
	Failures int
}

func (s Setting) turns() time.Duration {
	return time.Duration(s.Absent) * cmp.Or(s.Turn, s.FirstSpan, 2*time.Second)
}

func (s Setting) lateExpiry() time.Duration { return Slack + s.ExpiresLate }

// served is the longest time until every host that wants a lock has been granted it. The time
// counts from the end of the last interruption or, if the holder died, from that death.
func (s Setting) served() time.Duration {
	d := s.TTL + s.lateExpiry() + retry + Slack + s.turns() + PluginBack(s.Failures) + s.Reconnects
	if s.Swallowed {
		d += swallowed
	}
	return d + s.MaxTTL + s.MaxTTL/100
}
