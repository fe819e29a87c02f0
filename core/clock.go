package core

import (
	"math"
	"sync/atomic"
	"time"
)

// instant is a time on the clock of one Client: nanoseconds since New.
type instant int64

// never is later than every instant that the clock shows.
const never = instant(math.MaxInt64)

func (i instant) add(d time.Duration) instant { return i + instant(d) }

func (i instant) sub(j instant) time.Duration { return time.Duration(i - j) }

// noise is the largest difference that two clocks may show without a
// suspend, because they are read one after the other.
const noise = time.Millisecond

// clock is the only clock by which core decides anything. clock counts the
// time in which the machine was suspended, because a lease expires in the
// store meanwhile. Go's monotonic clock does not count that time.
type clock struct {
	base time.Time
	// boot reads a clock that counts suspends. boot is nil if the system has no such clock.
	boot  func() (time.Duration, bool)
	start time.Duration // boot's reading at base
	// suspended is the time in which the machine was suspended, in nanoseconds:
	// how far boot's clock was ahead of the monotonic clock when last measured.
	suspended atomic.Int64
	// noted is the instant at which suspended last grew.
	noted atomic.Int64
}

// init starts the clock at zero.
func (c *clock) init(boot func() (time.Duration, bool)) {
	c.base = time.Now()
	// Only in a testing/synctest bubble has c.base no monotonic reading. Time
	// there does not come from the kernel, and the machine is never suspended.
	if c.base == c.base.Round(0) {
		return
	}
	if start, ok := boot(); ok {
		c.boot, c.start = boot, start
	}
}

// now returns the present instant.
func (c *clock) now() instant {
	if c.boot == nil {
		return instant(time.Since(c.base))
	}
	// Boot time is read before monotonic time. A pause of this thread between
	// the readings can then only hide a suspend, for one call. In the other
	// order, the pause would be counted as a suspend for good.
	total, ok := c.boot()
	mono := time.Since(c.base)
	if ok {
		c.note(total - c.start - mono)
	}
	return instant(mono).add(time.Duration(c.suspended.Load()))
}

// early is like now, but does not ask the kernel for new suspends, so it is
// never later than now. Use it only for the instant at which a request is
// sent: the deadline counts from there, so an early instant is safe.
func (c *clock) early() instant {
	return instant(time.Since(c.base)).add(time.Duration(c.suspended.Load()))
}

// sleptSince reports whether the machine may have been suspended between i and now. If i
// was computed from an age that another process measured, i is too late after a suspend,
// because the age does not count it. sleptSince reads the two clocks in the opposite
// order to now, so that a pause may look like a suspend but never hides a suspend.
func (c *clock) sleptSince(i instant) bool {
	if c.boot == nil {
		return false
	}
	mono := time.Since(c.base)
	total, ok := c.boot()
	return ok && total-c.start-mono >= time.Duration(c.suspended.Load())+noise || i <= instant(c.noted.Load())
}

// note stores growth in suspended if it exceeds the stored value by more than noise.
func (c *clock) note(growth time.Duration) {
	for {
		known := c.suspended.Load()
		if growth < time.Duration(known)+noise {
			return
		}
		c.noted.Store(int64(time.Since(c.base) + growth)) // first: a goroutine that sees suspended grow must see noted too
		if c.suspended.CompareAndSwap(known, int64(growth)) {
			return
		}
	}
}

// time converts an instant to a time that can be compared with time.Now until the next
// suspend of the machine. It counts only suspends that a call of method now has noticed.
func (c *clock) time(i instant) time.Time {
	return c.base.Add(i.sub(0) - time.Duration(c.suspended.Load()))
}

// driftOf returns how much a deadline is earlier than the TTL, to allow for clocks that run
// at different speeds: a hundredth of the TTL plus 2 ms, but at most a tenth of the TTL.
func driftOf(ttl time.Duration) time.Duration {
	return min(ttl/100+2*time.Millisecond, ttl/10)
}

// leadOf returns how long before its deadline a lease is ended, so that Done closes
// in time although timers fire late: 5 ms, but at most a fiftieth of the TTL.
func leadOf(ttl time.Duration) time.Duration {
	return min(5*time.Millisecond, ttl/50)
}

// lifeOf returns how long after its request was sent a lease with this TTL is ended.
func lifeOf(ttl time.Duration) time.Duration {
	return ttl - driftOf(ttl) - leadOf(ttl)
}
