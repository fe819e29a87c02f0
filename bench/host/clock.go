package host

import (
	"sync"
	"time"

	"github.com/lockbench/lockbench/bench/load"
)

// clock reads the machine's clock, of [load.MachineTime], for what this process
// has timed with its own.
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
var newClock = sync.OnceValue(func() (best clock) {
	closest := int64(-1)
	for range readings {
		before := load.MachineTime()
		now := time.Now()
		after := load.MachineTime()
		if gap := after - before; closest < 0 || gap < closest {
			closest, best = gap, clock{base: now, at: before + gap/2}
		}
	}
	return best
})

func (c clock) now() int64 { return c.of(time.Now()) }

// zero is the time at which it stood at zero.
func (c clock) zero() time.Time { return c.base.Add(-time.Duration(c.at)) }

// of is what it showed at t, a time that this process has read.
func (c clock) of(t time.Time) int64 { return c.at + int64(t.Sub(c.base)) }
