package load

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/lockbench/lockbench/internal/proc"
)

// Cycle acquires and releases until the clock says so, and at least once in
// the measured time: a cycle that began before its end is waited for and
// counts, however long it takes. Leaving it out would leave out the stalls.
// What was acquired is released although ctx may have ended since. Before each
// cycle choose picks the lock, where it is given.
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

// Run lets the callers cycle through locker, and returns them with what they
// have recorded. When ctx ends, so do they.
func (c Cycles) Run(ctx context.Context, locker Locker, clock Clock) []*Caller {
	callers := make([]*Caller, c.Callers)
	Workers(c.Callers, func(i int) {
		number := c.First + i
		caller, random := &Caller{Client: int32(number), Clock: clock}, rand.New(rand.NewPCG(c.Seed, uint64(number)))
		callers[i] = caller
		locks := map[int]Lock{} // those that were chosen: a thousand callers would fill memory with places for all
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
	return callers
}
