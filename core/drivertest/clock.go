package drivertest

import (
	"fmt"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/internal/proc"
)

const (
	// tolerance is the delay that the scheduling of a busy machine may add.
	tolerance = 150 * time.Millisecond
	// pollEvery is the pace of polling for an expected change, lookEvery the
	// pace of checking that a state stays.
	pollEvery = 3 * time.Millisecond
	lookEvery = 10 * time.Millisecond
	// breath is the pause between two tries of a contender.
	breath = 50 * time.Microsecond
)

// ttl returns the shortest TTL that the backend takes and that is not below d.
func (h *Harness) ttl(d time.Duration) time.Duration {
	d = max(d, h.props.TTLMin)
	if over := d % h.props.TTLStep; over != 0 {
		d += h.props.TTLStep - over
	}
	return min(d, h.props.TTLMax)
}

// lastingTTL is the TTL of a lease that no case outlives.
const lastingTTL = 30 * time.Second

// lasting are the options of a lease that no case outlives.
func (h *Harness) lasting() core.LockOptions { return core.LockOptions{TTL: h.ttl(lastingTTL)} }

// brief are the options of a lease whose end a case waits for.
func (h *Harness) brief() core.LockOptions {
	return core.LockOptions{TTL: h.ttl(600 * time.Millisecond)}
}

// late is how long after its TTL a lease may live on: stores that count in
// coarse steps also sweep in such steps.
func (h *Harness) late() time.Duration {
	return 300*time.Millisecond + 2*h.props.TTLStep
}

// eventually polls until ok returns true, and fails the case when the
// process has run for limit.
func eventually(t T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); {
		if ranSince(t, start) > limit {
			mistimed(t, limit, "after %v this has not come: %s", limit, what)
		}
		pause(t, pollEvery)
	}
	step(t, "%s", what)
}

// throughout polls for all of d, and fails the case as soon as wrong returns
// a text.
func throughout(t T, d time.Duration, wrong func() string) {
	t.Helper()
	for start := time.Now(); time.Since(start) < d; pause(t, lookEvery) {
		if what := wrong(); what != "" {
			t.Fatalf("after %v of %v: %s", time.Since(start).Round(time.Millisecond), d, what)
		}
	}
}

// pause lets time go by, for a case about the passing of time.
func pause(t T, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
		t.Fatalf("the case was ended: %v", t.Context().Err())
	}
}

// awaitDone waits for the end of l. It fails the case if Done closes after
// the last deadline that l stated, or if l does not say that it is over.
func awaitDone(t T, l held, limit time.Duration) {
	t.Helper()
	awaitDoneOr(t, l, limit, func() bool { return false })
}

// awaitDoneOr is awaitDone, which also ends when saved returns true.
func awaitDoneOr(t T, l held, limit time.Duration, saved func() bool) {
	t.Helper()
	deadline := l.Deadline()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for start := time.Now(); ; {
		select {
		case <-l.Done():
			wantWithin(t, deadline, time.Now(), tolerance, "the closing of Done after the deadline")
			if l.Valid() || l.Err() == nil {
				t.Errorf("after Done Valid is %t and Err is %v", l.Valid(), l.Err())
			}
			return
		case <-poll.C:
			now, valid := time.Now(), l.Valid()
			deadline = l.Deadline()
			wantWithin(t, now, time.Now(), tolerance, "a look at the lease")
			if over := now.Sub(deadline); over > 0 && valid {
				t.Errorf("Valid %v after the deadline", over)
			}
			if valid && saved() {
				return
			}
			if ran(t, start, now) > limit {
				mistimed(t, limit, "Done has not closed after %v; the deadline is %v away, state %v", limit, time.Until(l.Deadline()), l.State())
			}
		}
	}
}

// stallShare bounds the excuse for a missed limit: the process must have
// stalled for at least one part in stallShare of the time.
const stallShare = 10

// heartbeat measures the stalls of the process that runs a case: while it
// stalls, a stopwatch says nothing about a backend.
type heartbeat interface {
	Stalled(from, to time.Time) time.Duration
	Stop() []proc.Stall
}

// ran returns how much of the time between the two instants this process
// ran. Use it to check that an operation takes no longer than allowed.
func ran(t T, from, to time.Time) time.Duration {
	if x, ok := t.(*trial); ok {
		return to.Sub(from) - x.heartbeat.Stalled(from, to)
	}
	return to.Sub(from)
}

// ranSince is ran until now.
func ranSince(t T, from time.Time) time.Duration { return ran(t, from, time.Now()) }

// wantWithin fails if the time from one instant to the other was longer than
// limit.
func wantWithin(t T, from, to time.Time, limit time.Duration, what string) {
	t.Helper()
	if took := ran(t, from, to); took > limit {
		t.Errorf("%s took %v, and %v at most are allowed", what, took, limit)
	}
}

// mistimed ends the case because an event did not come, or a state did not
// last, in the past d. If the process stalled for so much of d that this may
// be the reason, the case is not judged and runs again in a fresh environment.
func mistimed(t T, d time.Duration, format string, args ...any) {
	t.Helper()
	now, what := time.Now(), fmt.Sprintf(format, args...)
	if x, ok := t.(*trial); ok {
		what += x.after()
		if stalled := x.heartbeat.Stalled(now.Add(-d), now); stalled > max(tolerance, d/stallShare) {
			x.leaveOpen("this process stalled for %v of the last %v: %s", stalled, d, what)
		}
	}
	t.Fatalf("%s", what)
}

// wantAlive fails unless l, of the given TTL, is valid: otherwise it was not
// renewed in time.
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

// receive waits for a value from c, or the end of c, and reports whether it
// came within limit.
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
