package host

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// clock reads the monotonic clock of the machine in nanoseconds, which is one
// for all its processes (clock_gettime(2)).
type clock struct {
	base time.Time
	at   int64 // what it shows at base
}

// readings is how often both clocks are read: the closest pair counts. A
// process that is not running between the two readings of a pair would be off
// by as long as that lasts, and the overlap of two holders in different
// processes could be one of their clocks.
const readings = 50

// newClock is read once in a process, so that what is left of the error is the
// same for all that it talks to.
var newClock = sync.OnceValues(func() (best clock, err error) {
	closest := int64(-1)
	for range readings {
		before, err := monotonic()
		if err != nil {
			return clock{}, err
		}
		now := time.Now()
		after, err := monotonic()
		if err != nil {
			return clock{}, err
		}
		if gap := after - before; closest < 0 || gap < closest {
			closest, best = gap, clock{base: now, at: before + gap/2}
		}
	}
	return best, nil
})

func monotonic() (int64, error) {
	var ts unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano(), err
}

func (c clock) now() int64 { return c.of(time.Now()) }

// zero is the time at which it stood at zero.
func (c clock) zero() time.Time { return c.base.Add(-time.Duration(c.at)) }

// of is what it showed at t, a time that this process has read.
func (c clock) of(t time.Time) int64 { return c.at + int64(t.Sub(c.base)) }
