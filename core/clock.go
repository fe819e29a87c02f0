package core

import (
	"math"
	"sync/atomic"
	"time"
)

// instant is a time in nanoseconds since function New made the client.
type instant int64

// never is later than any instant that the clock can show.
const never = instant(math.MaxInt64)

func (i instant) add(d time.Duration) instant { return i + instant(d) }

func (i instant) sub(j instant) time.Duration { return time.Duration(i - j) }

// noise is the smallest difference between boot time and monotonic time that counts as a suspend.
// Smaller differences come from reading one clock after the other.
const noise = time.Millisecond

// clock is the only clock that package core uses for decisions. It counts the time in which the
// machine is suspended, because leases expire in the store meanwhile. Go's monotonic clock does not
// count that time.
type clock struct {
	base time.Time
	// boot reads a clock that goes on in a suspend. It is nil if the system has no such clock.
	boot  func() (time.Duration, bool)
	start time.Duration // boot's reading at base
	// suspended is the total time of the machine's suspends since base, in nanoseconds. When the now
	// method notices a suspend, it sets suspended to the boot clock's lead over Go's monotonic clock.
	suspended atomic.Int64
	noted     atomic.Int64
}

func (c *clock) init(boot func() (time.Duration, bool)) {
	c.base = time.Now()
	// c.base lacks a monotonic reading only in a testing/synctest bubble. A bubble has a separate
	// time, in which the machine is never suspended.
	if c.base == c.base.Round(0) {
		return
	}
	if start, ok := boot(); ok {
		c.boot, c.start = boot, start
	}
}

func (c *clock) now() instant {
	if c.boot == nil {
		return instant(time.Since(c.base))
	}
	// Read boot time before monotonic time. If this thread is paused in between, this call may miss a
	// suspend, but the next call notices it. If monotonic time were read first, such a pause would be
	// recorded as a suspend for ever.
	total, ok := c.boot()
	mono := time.Since(c.base)
	if ok {
		c.note(total - c.start - mono)
	}
	return instant(mono).add(time.Duration(c.suspended.Load()))
}

// The early method returns the time as the now method does, but does not look for new suspends. So
// the result may be too early, but is never too late. Use it only where that is safe. For example,
// if the recorded time of a request is too early, the lease only ends too early.
func (c *clock) early() instant {
	return instant(time.Since(c.base)).add(time.Duration(c.suspended.Load()))
}

// sleptSince reports whether the machine may have been suspended since the instant i. Unlike the
// now method, it reads the monotonic clock first. A pause between the two readings may look like a
// suspend, but no suspend is missed. If i comes from an age that another process measured, that age
// lacks the time of the suspend, so i is too late.
func (c *clock) sleptSince(i instant) bool {
	if c.boot == nil {
		return false
	}
	mono := time.Since(c.base)
	total, ok := c.boot()
	return ok && total-c.start-mono >= time.Duration(c.suspended.Load())+noise || i <= instant(c.noted.Load())
}

// note records a suspend if growth exceeds the suspended field by at least noise.
func (c *clock) note(growth time.Duration) {
	for {
		known := c.suspended.Load()
		if growth < time.Duration(known)+noise {
			return
		}
		c.noted.Store(int64(time.Since(c.base) + growth)) // stored before suspended: a goroutine that reads the new suspended also reads the new noted
		if c.suspended.CompareAndSwap(known, int64(growth)) {
			return
		}
	}
}

// The time method converts an instant to a time.Time. The result can be compared with time.Now
// until the machine's next suspend. It counts only the suspends that the now method has noticed.
func (c *clock) time(i instant) time.Time {
	return c.base.Add(i.sub(0) - time.Duration(c.suspended.Load()))
}

// driftOf returns the time by which a lease must end before its TTL is over, because the clocks of
// host and store differ in speed. It is 1 % of the TTL plus 2 ms, but at most 10 % of the TTL.
func driftOf(ttl time.Duration) time.Duration {
	return min(ttl/100+2*time.Millisecond, ttl/10)
}

// leadOf returns the time by which the client ends a lease before the lease's deadline. Timers fire
// late, but Done must close before the deadline. The result is 5 ms, but at most 2 % of the TTL.
func leadOf(ttl time.Duration) time.Duration {
	return min(5*time.Millisecond, ttl/50)
}

// lifeOf returns the time from when a request is sent until the client ends the lease.
func lifeOf(ttl time.Duration) time.Duration {
	return ttl - driftOf(ttl) - leadOf(ttl)
}
