package drivertest

import (
	"fmt"
	"sync"
	"time"
)

const (
	// beatEvery is how often a case looks whether its process runs.
	beatEvery = 5 * time.Millisecond
	// stillAfter is the silence from which on it did not.
	stillAfter = 15 * time.Millisecond
	// stillShare is the part of a time, one in so many, that the process must
	// have stood still for before what it missed in that time is excused.
	stillShare = 10
)

// heartbeat notes when this process did not run, whoever withheld it from
// running: a stopwatch says nothing about a backend then.
type heartbeat struct {
	end  chan struct{}
	over sync.WaitGroup

	mu     sync.Mutex
	last   time.Time
	stills []still
}

// still is a time in which the process did not run.
type still struct{ from, to time.Time }

func startHeartbeat() *heartbeat {
	b := &heartbeat{end: make(chan struct{}), last: time.Now()}
	b.over.Go(b.run)
	return b
}

func (b *heartbeat) stop() {
	close(b.end)
	b.over.Wait()
}

func (b *heartbeat) run() {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			b.note(time.Now())
		case <-b.end:
			return
		}
	}
}

// note is a beat at now.
func (b *heartbeat) note(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.last) > stillAfter {
		b.stills = append(b.stills, still{b.last, now})
	}
	b.last = later(b.last, now)
}

// stood returns for how long of the time between the two instants the process
// stood still.
func (b *heartbeat) stood(from, to time.Time) (sum time.Duration) {
	b.note(time.Now()) // the goroutine that asks may be back before the ticker's
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.stills {
		if s.from.Before(from) {
			s.from = from
		}
		if s.to.After(to) {
			s.to = to
		}
		sum += max(0, s.to.Sub(s.from))
	}
	return sum
}

// ran returns how much of the time between the two instants this process ran.
// What may take so long and no longer is measured by it.
func ran(t T, from, to time.Time) time.Duration {
	if x, ok := t.(*trial); ok {
		return to.Sub(from) - x.beat.stood(from, to)
	}
	return to.Sub(from)
}

// ranSince is ran until now.
func ranSince(t T, from time.Time) time.Duration { return ran(t, from, time.Now()) }

// mistimed ends the case because of what did not come, or did not last, in the
// past d. When the process stood still for so much of d that this may be why,
// the case is not judged and runs again, in a fresh world.
func mistimed(t T, d time.Duration, format string, args ...any) {
	t.Helper()
	now, what := time.Now(), fmt.Sprintf(format, args...)
	if x, ok := t.(*trial); ok {
		if stood := x.beat.stood(now.Add(-d), now); stood > max(tolerance, d/stillShare) {
			x.leaveOpen("this process stood still for %v of the last %v: %s", stood, d, what)
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
			continue // the process may have stood still
		}
		select {
		case v = <-c:
			return v, true
		default:
			return v, false
		}
	}
}
