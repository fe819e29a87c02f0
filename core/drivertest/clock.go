package drivertest

import (
	"fmt"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/internal/proc"
)

const (
	// tolerance is the delay that the scheduling of a busy machine may add to a measured time.
	tolerance = 150 * time.Millisecond
	// pollEvery is the pause between two checks whether an expected change has
	// come. lookEvery is the pause between two checks whether a state still lasts.
	pollEvery = 3 * time.Millisecond
	lookEvery = 10 * time.Millisecond
	// breath is the pause between two attempts of a caller that contends for a lock.
	breath = 50 * time.Microsecond
)

// ttl returns the shortest TTL that the backend accepts and that is not below d. If there is no
// such TTL, it returns the backend's longest TTL.
func (h *Harness) ttl(d time.Duration) time.Duration {
	d = max(d, h.props.TTLMin)
	if over := d % h.props.TTLStep; over != 0 {
		d += h.props.TTLStep - over
	}
	return min(d, h.props.TTLMax)
}

// lastingTTL is the TTL of a lease that must not expire during its case.
const lastingTTL = 30 * time.Second

func (h *Harness) lasting() core.LockOptions { return core.LockOptions{TTL: h.ttl(lastingTTL)} }

// The brief method returns options for a lease whose expiry the case waits for.
func (h *Harness) brief() core.LockOptions {
	return core.LockOptions{TTL: h.ttl(600 * time.Millisecond)}
}

// The late method returns the longest time by which a lease may outlive its TTL. A store that
// counts time in steps of TTLStep removes an expired lease only at a step.
func (h *Harness) late() time.Duration {
	return 300*time.Millisecond + 2*h.props.TTLStep
}

// eventually waits until the function ok returns true. If ok still returns false after this process
// has run for the duration limit, eventually calls mistimed.
func eventually(t T, limit time.Duration, what string, ok func() bool) {
	for start := time.Now(); !ok(); {
		if ranSince(t, start) > limit {
			mistimed(t, limit, "after %v this has not come: %s", limit, what)
		}
		pause(t, pollEvery)
	}
	step(t, "%s", what)
}

// For the time d, throughout calls the function named wrong. The case fails if it returns a text.
func throughout(t T, d time.Duration, wrong func() string) {
	for start := time.Now(); time.Since(start) < d; pause(t, lookEvery) {
		if what := wrong(); what != "" {
			t.Fatalf("after %v of %v: %s", time.Since(start).Round(time.Millisecond), d, what)
		}
	}
}

func pause(t T, d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatalf("the case was ended: %v", t.Context().Err())
	}
}

// awaitDone waits until Done closes. The case fails if Done closes more than tolerance after the
// last deadline of l, if l is valid after that deadline, or if Err is nil after Done. If saved is
// not nil, awaitDone also returns if l is valid and saved returns true.
func awaitDone(t T, l held, limit time.Duration, saved func() bool) {
	deadline := l.Deadline()
	for start := time.Now(); ; {
		select {
		case <-l.Done():
			wantWithin(t, deadline, time.Now(), tolerance, "the closing of Done after the deadline")
			if l.Valid() || l.Err() == nil {
				t.Errorf("after Done Valid is %t and Err is %v", l.Valid(), l.Err())
			}
			return
		case <-time.After(pollEvery):
			now, valid := time.Now(), l.Valid()
			deadline = l.Deadline()
			wantWithin(t, now, time.Now(), tolerance, "a look at the lease")
			if over := now.Sub(deadline); over > 0 && valid {
				t.Errorf("Valid %v after the deadline", over)
			}
			if valid && saved != nil && saved() {
				return
			}
			if ran(t, start, now) > limit {
				mistimed(t, limit, "Done has not closed after %v; the deadline is %v away, state %v", limit, time.Until(l.Deadline()), l.State())
			}
		}
	}
}

// stallShare says when a missed limit is excused: this process must have
// stalled for more than 1/stallShare of the time, and for more than tolerance.
const stallShare = 10

// heartbeat measures when this process stalled. A time that includes a stall proves nothing about a
// backend.
type heartbeat interface {
	Stalled(from, to time.Time) time.Duration
	Stop() []proc.Stall
}

// The function ran returns how long this process ran, without stalls, between the two given times.
// Use it to check that an operation takes no longer than allowed.
func ran(t T, from, to time.Time) time.Duration {
	return to.Sub(from) - t.(*trial).heartbeat.Stalled(from, to)
}

func ranSince(t T, from time.Time) time.Duration { return ran(t, from, time.Now()) }

func wantWithin(t T, from, to time.Time, limit time.Duration, what string) {
	if took := ran(t, from, to); took > limit {
		t.Errorf("%s took %v, and %v at most are allowed", what, took, limit)
	}
}

// mistimed ends the case because an event did not come, or a state did not last, within the
// duration d before now. If a stall of this process may be the reason (see stallShare), the case
// runs again with a new harness (see tries).
func mistimed(t T, d time.Duration, format string, args ...any) {
	now, what := time.Now(), fmt.Sprintf(format, args...)
	x := t.(*trial)
	what += x.after()
	if stalled := x.heartbeat.Stalled(now.Add(-d), now); stalled > max(tolerance, d/stallShare) {
		x.leaveOpen("this process stalled for %v of the last %v: %s", stalled, d, what)
	}
	t.Fatalf("%s", what)
}

// wantAlive calls mistimed if l is over, because a stall during the past ttl may be the reason.
func wantAlive(t T, l held, ttl time.Duration) {
	if !l.Valid() {
		mistimed(t, ttl, "the lease of token %d is over: %v", l.Token(), l.Err())
	}
}

func staysAlive(t T, d, ttl time.Duration, all ...held) {
	throughout(t, d, func() string {
		for _, l := range all {
			wantAlive(t, l, ttl)
		}
		return ""
	})
}

// The result ok is false if this process has run for the duration limit and c has yielded no value.
func receive[V any](t T, c <-chan V, limit time.Duration) (v V, ok bool) {
	start := time.Now()
	for left := limit; left > 0; left = limit - ranSince(t, start) { // more than once after a stall
		select {
		case v = <-c:
			return v, true
		case <-time.After(left):
		}
	}
	select {
	case v = <-c:
		return v, true
	default:
		return v, false
	}
}
