package load

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Arrival is an operation that is to start at a time of its own, whether those
// before it have ended or not.
type Arrival struct {
	Due    int64 // on the run's clock
	Caller int
}

// Poisson plans arrivals at random times between from and until, rate of them
// per second in the mean, each for a random one of the callers. The source of
// the randomness determines all of them.
func Poisson(r *rand.Rand, rate float64, callers int, from, until int64) []Arrival {
	var out []Arrival
	for at := float64(from); ; {
		at += r.ExpFloat64() * float64(time.Second) / rate
		if math.IsNaN(at) || at >= float64(until) {
			return out
		}
		out = append(out, Arrival{Due: int64(at), Caller: r.IntN(callers)})
	}
}

// Pace calls send for each arrival when it is due, and at once for those that
// are overdue. It returns early when ctx ends. The order is that of arrivals,
// which are by time; send must not block.
func Pace(ctx context.Context, clock Clock, arrivals []Arrival, send func(Arrival)) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, a := range arrivals {
		for {
			left := time.Duration(a.Due - clock.Now())
			if left <= 0 {
				break
			}
			if ctx.Err() != nil {
				return
			}
			sleep(min(left, longestSleep))
		}
		send(a)
	}
}

// longestSleep is how late Pace may notice that ctx has ended.
const longestSleep = 20 * time.Millisecond

// sleep waits in the kernel.
//
// Note: timers of the Go runtime fire up to a millisecond late on Linux when
// nothing else goes on, which is ten times what an acquire takes.
func sleep(d time.Duration) {
	tv := unix.NsecToTimeval(int64(d + time.Microsecond - 1))
	_, _ = unix.Select(0, nil, nil, nil, &tv) // an early return is looked at by the caller
}
