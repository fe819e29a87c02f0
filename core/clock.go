package core

import (
	"math"
	"sync/atomic"
	"time"
)

// instant is a time in nanoseconds since function New made the client.
type instant int64

// The constant named never is later than any instant that the clock can show.
const never = instant(math.MaxInt64)

func (i instant) add(d time.Duration) instant { return i + instant(d) }

func (i instant) sub(j instant) time.Duration { return time.Duration(i - j) }

// noise is the smallest difference between boot time and monotonic time that counts as a suspend.
// Smaller differences come from reading one clock after the other.
const noise = time.Millisecond

// clock is the only clock that package core uses for decisions. It counts the time in which the
// machine is suspended, because leases expire in the store during a suspend. Go's monotonic clock
// does not count that time.
type clock struct {
	base time.Time
	// boot reads a clock that goes on during a suspend. It is nil if the system has no such clock.
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
	// Read boot time before monotonic time. If this thread is paused between the two readings, this
	// call may miss a suspend, but the next call notices it. If monotonic time were read first, the
	// pause would be counted as a suspend for ever.
	total, ok := c.boot()
	mono := time.Since(c.base)
	if ok {
		c.note(total - c.start - mono)
	}
	return instant(mono).add(time.Duration(c.suspended.Load()))
}

// The early method returns the time as the now method does, but does not look for new suspends. So
// the result may be too early, but is never too late. Use early only where such a result is safe.
// For example, if the recorded time of a request is too early, the lease only ends too early.
func (c *clock) early() instant {
	return instant(time.Since(c.base)).add(time.Duration(c.suspended.Load()))
}

// sleptSince reports whether the machine may have been suspended since the instant i. Unlike the
// now method, it reads the monotonic clock before the boot clock. A pause between the two readings
// may look like a suspend, but no suspend is missed. The caller may have computed i from an age
// that another process measured. Such an age lacks the time of a suspend, so i is then too late.
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
		c.noted.Store(int64(time.Since(c.base) + growth)) // stored before c.suspended, so that a goroutine that reads the new c.suspended also reads the new c.noted
		if c.suspended.CompareAndSwap(known, int64(growth)) {
			return
		}
	}
}

// The time method converts an instant to a time.Time. The result can be compared with time.Now
// until the machine's next suspend. It counts only those suspends that the now method has noticed.
func (c *clock) time(i instant) time.Time {
	return c.base.Add(i.sub(0) - time.Duration(c.suspended.Load()))
}

// driftOf returns the part of the TTL that a lease must not use, because the clocks of host and
// store differ in speed. The result is 1 % of the TTL plus 2 ms, but at most 10 % of the TTL.
func driftOf(ttl time.Duration) time.Duration {
	return min(ttl/100+2*time.Millisecond, ttl/10)
}

// leadOf returns how long before a lease's deadline the client ends the lease. Timers fire late,
// but Done must close before the deadline. The result is 5 ms, but at most 2 % of the TTL.
func leadOf(ttl time.Duration) time.Duration {
	return min(5*time.Millisecond, ttl/50)
}

// lifeOf returns the time from when a request is sent until the client ends the lease.
func lifeOf(ttl time.Duration) time.Duration {
	return ttl - driftOf(ttl) - leadOf(ttl)
}
