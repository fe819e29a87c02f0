package drivertest

import (
	"fmt"
	"time"

	"github.com/lockbench/lockbench/internal/proc"
)

// stallShare is the part of a time, one in so many, that the process must have
// stalled for before what it missed in that time is excused.
const stallShare = 10

// heartbeat is that of the process which runs a case: where it stalled, a
// stopwatch says nothing about a backend.
type heartbeat interface {
	Stalled(from, to time.Time) time.Duration
	Stop() []proc.Stall
}

// ran returns how much of the time between the two instants this process ran.
// What may take so long and no longer is measured by it.
func ran(t T, from, to time.Time) time.Duration {
	if x, ok := t.(*trial); ok {
		return to.Sub(from) - x.heartbeat.Stalled(from, to)
	}
	return to.Sub(from)
}

// ranSince is ran until now.
func ranSince(t T, from time.Time) time.Duration { return ran(t, from, time.Now()) }

// wantWithin fails when what took from one instant to the other took longer
// than limit.
func wantWithin(t T, from, to time.Time, limit time.Duration, what string) {
	t.Helper()
	if took := ran(t, from, to); took > limit {
		t.Errorf("%s took %v, and %v at most are allowed", what, took, limit)
	}
}

// mistimed ends the case because of what did not come, or did not last, in the
// past d. When the process stalled for so much of d that this may be why,
// the case is not judged and runs again, in a fresh environment.
func mistimed(t T, d time.Duration, format string, args ...any) {
	t.Helper()
	now, what := time.Now(), fmt.Sprintf(format, args...)
	if x, ok := t.(*trial); ok {
		if stalled := x.heartbeat.Stalled(now.Add(-d), now); stalled > max(tolerance, d/stallShare) {
			x.leaveOpen("this process stalled for %v of the last %v: %s", stalled, d, what)
		}
	}
	t.Fatalf("%s", what)
}

// wantAlive fails unless l, of the given TTL, is valid: it was not renewed in
// time.
func wantAlive(t T, l held, ttl time.Duration) {
	t.Helper()
	if !l.Valid() {
		mistimed(t, ttl, "the lease of token %d is over: %v", l.Token(), l.Err())
	}
}

// staysAlive fails unless all, each of the given TTL, are valid for all of d.
func staysAlive(t T, d, ttl time.Duration, all ...held) {
	t.Helper()
	throughout(t, d, func() string {
		for _, l := range all {
			wantAlive(t, l, ttl)
		}
		return ""
	})
}

// receive waits for a value from c, or its end, and reports whether it came
// within limit.
func receive[V any](t T, c <-chan V, limit time.Duration) (v V, ok bool) {
	for start := time.Now(); ; {
		left := limit - ranSince(t, start)
		timer := time.NewTimer(max(0, left))
		select {
		case v = <-c:
			timer.Stop()
			return v, true
		case <-timer.C:
		}
		if left > 0 {
			continue // the process may have stalled
		}
		select {
		case v = <-c:
			return v, true
		default:
			return v, false
		}
	}
}
