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

// noise bounds the difference that two clocks may show when they are read
// one after the other, without a suspend in between.
const noise = time.Millisecond

// clock is the only clock by which core decides anything. clock counts the
// time in which the machine was suspended, because a lease expires in the
// store meanwhile. Go's monotonic clock does not count that time.
type clock struct {
	base time.Time
	// boot reads a clock that counts suspends. boot is nil when the system has none.
	boot  func() (time.Duration, bool)
	start time.Duration // boot's reading at base
	// suspended is how far boot's clock has gone ahead of the monotonic
	// clock, as last measured, in nanoseconds.
	suspended atomic.Int64
	// noted is the instant at which suspended last grew.
	noted atomic.Int64
}

// init starts the clock at zero.
func (c *clock) init(boot func() (time.Duration, bool)) {
	c.base = time.Now()
	// A time without a monotonic reading comes from a testing/synctest bubble,
	// where time is not the kernel's and the machine never sleeps.
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
	// Boot time is read first. If this thread pauses between the two readings,
	// the pause then hides a suspend for one call. In the other order, the
	// pause would be counted as a suspend for good.
	total, ok := c.boot()
	mono := time.Since(c.base)
	if ok {
		c.note(total - c.start - mono)
	}
	return instant(mono).add(time.Duration(c.suspended.Load()))
}

// early is like now, but does not ask the kernel for new suspends, and so
// is never later than now. It is safe only for the instant at which a
// request is sent, because the deadline counts from it.
func (c *clock) early() instant {
	return instant(time.Since(c.base)).add(time.Duration(c.suspended.Load()))
}

// sleptSince reports whether the machine may have been suspended between i and now. i
// may have been computed from an age that another process measured. Such an age
// counts no suspend. After a suspend, i would then be too late. The clocks are read
// in the opposite order to now, so a pause may look like a suspend but hides none.
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
		c.noted.Store(int64(time.Since(c.base) + growth)) // first: a goroutine that sees the growth also sees its instant
		if c.suspended.CompareAndSwap(known, int64(growth)) {
			return
		}
	}
}

// time converts an instant to a time that compares with time.Now as long as the machine
// is not suspended again. time counts the suspends that a call of now has seen.
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
