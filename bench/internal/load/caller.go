package load

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/proc"
)

// Caller is a worker that acquires and releases a lock, and records each attempt. Only one
// goroutine may use it.
type Caller struct {
	Client, Name int32
	Clock        proc.Clock
	Lock         Lock

	// Attempts has the records of all attempts so far. If the caller holds a lease, the last attempt
	// is the one that got the lease.
	Attempts []results.Attempt
	// Err is the first error of a call that failed before its ctx ended.
	Err error
}

// Acquire waits for the lock.
func (c *Caller) Acquire(ctx context.Context) (Lease, bool) {
	a := results.Attempt{Client: c.Client, Name: c.Name, Asked: c.Clock.Now()}
	lease, err := c.Lock.Acquire(ctx)
	a.Answered = c.Clock.Now()
	a.Outcome = OutcomeOf(err)
	switch {
	case err == nil:
		a.Token = lease.Token()
		if t, ok := lease.(Timed); ok {
			a.Asked, a.Answered = t.Granted()
		}
	case ctx.Err() != nil: // not every library returns an error that wraps the error of ctx
		a.Outcome = results.Cancelled
	}
	c.Attempts = append(c.Attempts, a)
	c.note(ctx, err)
	return lease, err == nil
}

// Release releases the lease that the last Acquire returned, and reports whether the store
// confirmed the release.
func (c *Caller) Release(ctx context.Context, lease Lease) bool {
	a := &c.Attempts[len(c.Attempts)-1]
	a.Ended = c.Clock.Now()
	err := lease.Release(ctx)
	a.Done = c.Clock.Now()
	if t, ok := lease.(Timed); ok && err == nil {
		a.Ended, a.Done = t.Released()
	}
	a.End = results.EndReleased
	if err != nil {
		a.End = results.EndReleaseFailed
	}
	c.note(ctx, err)
	return err == nil
}

// Renew renews the lease and returns the time that this took, in nanoseconds.
func (c *Caller) Renew(ctx context.Context, lease Lease) (took int64, ok bool) {
	sent := c.Clock.Now()
	err := lease.Renew(ctx)
	took = c.Clock.Now() - sent
	c.note(ctx, err)
	return took, err == nil
}

func (c *Caller) note(ctx context.Context, err error) {
	if err != nil && c.Err == nil && ctx.Err() == nil {
		c.Err = err
	}
}

// Cycle acquires and releases in a loop. It stops at the time in parameter until, or when ctx ends.
// Unless ctx ends, it begins at least one cycle after the time in from. It waits for its last cycle
// without a limit, so that stalls show. It releases an acquired lock even if ctx has ended. If
// choose is not nil, it picks the lock before each cycle, and its error ends the loop.
func (c *Caller) Cycle(ctx context.Context, from, until int64, hold time.Duration, choose func() error) {
	uncancelled := context.WithoutCancel(ctx)
	for counts := false; ctx.Err() == nil; {
		now := c.Clock.Now()
		if counts && now >= until {
			return
		}
		counts = now >= from
		if choose != nil {
			if err := choose(); err != nil {
				c.note(ctx, err)
				return
			}
		}
		lease, ok := c.Acquire(ctx)
		if ok {
			proc.Sleep(ctx, hold)
			ok = c.Release(uncancelled, lease)
		}
		if !ok {
			Pause(ctx)
		}
	}
}

// Cycles describes a loop of one host's callers. Each caller acquires and releases random locks,
// one after the other, until the time in Until. Each caller begins at least one cycle after the
// time in From (see [Caller.Cycle]). Both times are nanoseconds on the run's clock.
type Cycles struct {
	Names       []string
	TTL, Hold   time.Duration
	Seed        uint64
	First       int // number of the first caller; Seed and a caller's number determine its choices
	Callers     int
	From, Until int64
}

// Run makes callers acquire and release locks of the locker until the cycles are done or ctx ends.
func (c Cycles) Run(ctx context.Context, locker Locker, clock proc.Clock) (attempts []results.Attempt, first error) {
	callers := make([]*Caller, c.Callers)
	Workers(c.Callers, func(i int) {
		number := c.First + i
		caller, random := &Caller{Client: int32(number), Clock: clock}, rand.New(rand.NewPCG(c.Seed, uint64(number)))
		callers[i] = caller
		locks := map[int]Lock{} // a map, because a slice of all locks for each of a thousand callers would need too much memory
		caller.Cycle(ctx, c.From, c.Until, c.Hold, func() (err error) {
			n := random.IntN(len(c.Names))
			lock, ok := locks[n]
			if !ok {
				if lock, err = locker.Lock(c.Names[n], c.TTL); err != nil {
					return err
				}
				locks[n] = lock
			}
			caller.Name, caller.Lock = int32(n), lock
			return nil
		})
	})
	return Collect(callers)
}

// Collect returns the attempts of all callers, and the first error of any caller.
func Collect(callers []*Caller) (attempts []results.Attempt, first error) {
	total := 0
	for _, c := range callers {
		total += len(c.Attempts)
	}
	attempts = make([]results.Attempt, 0, total)
	for _, c := range callers {
		attempts = append(attempts, c.Attempts...)
		if first == nil {
			first = c.Err
		}
	}
	return attempts, first
}

// Workers runs body in n goroutines that start together, and returns when all
// have ended. Workers are numbered from 0 to n-1.
func Workers(n int, body func(worker int)) {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			<-start
			body(i)
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
}

// pauseAfterError is the pause of a caller after an error. It spares a store that is down.
const pauseAfterError = 5 * time.Millisecond

func Pause(ctx context.Context) { proc.Sleep(ctx, pauseAfterError) }

// Arrival is an operation with a fixed start time, which does not depend on other operations.
type Arrival struct {
	Due    int64 // on the run's clock
	Caller int
}

// Poisson returns arrivals at random times between from and until (a Poisson process), each for a
// random caller. Their mean number per second is rate. Equal states of r give equal arrivals.
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

// Pace calls send for each arrival at its time, or at once if that time has passed. When ctx ends,
// Pace returns before the next arrival that is not yet due. The arrivals must be in the order of
// their times, and send must not block.
func Pace(ctx context.Context, clock proc.Clock, arrivals []Arrival, send func(Arrival)) {
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

// longestSleep is the longest sleep of Pace, which checks after each sleep whether ctx has ended.
const longestSleep = 20 * time.Millisecond

// sleep blocks in the kernel for the duration d. A timer of the Go runtime would fire up to a
// millisecond late on an idle Linux machine, but an acquire takes only a tenth of a millisecond.
func sleep(d time.Duration) {
	tv := unix.NsecToTimeval(int64(d + time.Microsecond - 1))
	_, _ = unix.Select(0, nil, nil, nil, &tv) // the caller sleeps again after an early return
}
