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

// Caller is one worker that acquires and releases one lock and records each attempt.
// One goroutine uses it.
type Caller struct {
	Client, Name int32
	Clock        proc.Clock
	Lock         Lock

	// Attempts are the attempts so far; the last one belongs to the lease in hand.
	Attempts []results.Attempt
	// Err is the first error of an operation, other than the caller's ctx.
	Err error
}

// Acquire waits for the lock. The second result is false after an error.
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
	case ctx.Err() != nil: // not every library's error wraps that of ctx
		a.Outcome = results.Cancelled
	}
	c.Attempts = append(c.Attempts, a)
	c.note(ctx, err)
	return lease, err == nil
}

// Release gives back the lease that Acquire has just returned, and reports
// whether the store agreed.
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

// Renew renews the lease and returns how long it took in nanoseconds.
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

// Cycle acquires and releases until the time until, and at least once in the measured
// time. A cycle that began before then is waited for and counts, however long it
// takes; leaving it out would leave out the stalls. An acquired lock is released even
// if ctx has ended since. Before each cycle choose picks the lock, where it is given.
func (c *Caller) Cycle(ctx context.Context, from, until int64, hold time.Duration, choose func() error) {
	uncancelled := context.WithoutCancel(ctx)
	for counts := false; ctx.Err() == nil; {
		now := c.Clock.Now()
		if counts && now >= until {
			return
		}
		counts = now >= from
		if choose != nil {
			if c.Err = choose(); c.Err != nil {
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

// Cycles is a closed loop of the callers of one host: each takes and gives back
// one lock after the other, at random. From and Until, in nanoseconds on the
// run's clock, are when cycles begin to count and when no more begin.
type Cycles struct {
	Names       []string
	TTL, Hold   time.Duration
	Seed        uint64
	First       int // number of the first caller; each chooses by seed and number
	Callers     int
	From, Until int64
}

// Run lets the callers cycle through locker, and returns what [Collect] does. When
// ctx ends, so do they.
func (c Cycles) Run(ctx context.Context, locker Locker, clock proc.Clock) (attempts []results.Attempt, first error) {
	callers := make([]*Caller, c.Callers)
	Workers(c.Callers, func(i int) {
		number := c.First + i
		caller, random := &Caller{Client: int32(number), Clock: clock}, rand.New(rand.NewPCG(c.Seed, uint64(number)))
		callers[i] = caller
		locks := map[int]Lock{} // only chosen locks, because places for all would fill memory with a thousand callers
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

// Collect gathers attempts, and returns the first error of any caller.
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
// have ended. Worker numbers go from 0 to n-1.
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

// pauseAfterError keeps a closed loop against a store that is down from
// spinning.
const pauseAfterError = 5 * time.Millisecond

// Pause waits a moment after an error, or until ctx ends.
func Pause(ctx context.Context) { proc.Sleep(ctx, pauseAfterError) }

// Arrival is an operation with its own start time, whether earlier operations have
// ended or not.
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

// Pace calls send for each arrival when it is due, and at once for those that are
// overdue. It returns early when ctx ends. arrivals must be in the order of their
// times, and send must not block.
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

// longestSleep is the longest delay with which Pace notices the end of ctx.
const longestSleep = 20 * time.Millisecond

// sleep waits in the kernel.
//
// Note: timers of the Go runtime fire up to a millisecond late on Linux when
// nothing else goes on, which is ten times what an acquire takes.
func sleep(d time.Duration) {
	tv := unix.NsecToTimeval(int64(d + time.Microsecond - 1))
	_, _ = unix.Select(0, nil, nil, nil, &tv) // the caller handles an early return
}
