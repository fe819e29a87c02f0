package redis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

// judge knows who believes to hold a lock, and until when.
type judge struct {
	t      *testing.T
	mu     sync.Mutex
	holder driver.Request
	until  time.Time
	last   uint64
	grants int
	pushed int
}

// begin notes that r holds the lock until then, and fails if another believes so,
// or if its token is not above every earlier one.
func (j *judge) begin(r driver.Request, until time.Time, pushed bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now()
	if !until.After(now) {
		return // it was long in finding out
	}
	if j.until.After(now) {
		j.t.Errorf("%s has token %d, and %s believes to hold token %d for another %v", r.Owner, r.Token, j.holder.Owner, j.holder.Token, time.Until(j.until))
	}
	if r.Token <= j.last {
		j.t.Errorf("token %d of %s comes after token %d", r.Token, r.Owner, j.last)
	}
	j.holder, j.until, j.last = r, until, r.Token
	j.grants++
	if pushed {
		j.pushed++
	}
}

// set notes that r holds it until another time: now, before it releases.
func (j *judge) set(r driver.Request, until time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.holder.Owner == r.Owner {
		j.until = until
	}
}

// TestStorm: 32 processes that want one lock and end at random moments, without a
// word, or stop asking, never hold it two at a time, and tokens rise. A holder that
// ends goes on believing in its lease, as a host does that is cut off.
func TestStorm(t *testing.T) {
	s := start(t, nil)
	j := &judge{t: t}
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	var number, ended atomic.Int64
	var work sync.WaitGroup
	for range 32 {
		work.Go(func() {
			for ctx.Err() == nil {
				b, err := Open(&Options{Address: []string{s.Addr()}})
				if err != nil {
					t.Error(err)
					return
				}
				life, die := context.WithTimeout(ctx, 50*time.Millisecond+rand.N(2*time.Second))
				for life.Err() == nil {
					stormCycle(life, b, j, fmt.Sprint("o", number.Add(1)))
				}
				die()
				ended.Add(1)
				closeNow(t, b)
			}
		})
	}
	work.Wait()
	t.Logf("%d grants, %d of them by a push, %d processes ended", j.grants, j.pushed, ended.Load())
	if j.pushed == 0 || ended.Load() < 32 {
		t.Error("nothing went on")
	}
	b := connect(t, at(s))
	eventually(t, "the lock is free in the end", func() bool {
		_, err := b.TryAcquire(t.Context(), lease("a", "last"))
		return err == nil
	})
}

// stormCycle is one acquire, a renewal, some work and a release, each of which life may end.
func stormCycle(life context.Context, b *Backend, j *judge, owner string) {
	r := lease("a", owner)
	r.TTL = 300*time.Millisecond + rand.N(time.Second).Truncate(time.Millisecond)
	var until time.Time
	pushed := false
	for r.Token == 0 {
		sent := time.Now()
		token, err := b.TryAcquire(life, r)
		if r.Token, until = token, sent.Add(r.TTL); err == nil {
			break
		}
		g, err := b.Wait(life, r, 200*time.Millisecond)
		if r.Token, until, pushed = g.Token, g.Sent.Add(g.For), true; life.Err() != nil {
			return // without a withdrawal
		}
		if err != nil {
			<-time.After(time.Millisecond)
		}
	}
	j.begin(r, until, pushed)
	if sent := time.Now(); rand.N(4) > 0 && b.Renew(life, r) == nil {
		j.set(r, sent.Add(r.TTL))
	}
	<-time.After(rand.N(3 * time.Millisecond))
	if life.Err() != nil {
		return
	}
	j.set(r, time.Now())
	_ = b.Release(life, r)
}

// closeNow ends a process that has not said good-bye.
func closeNow(t *testing.T, b *Backend) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		t.Error(err)
	}
}

// The clock of the server steps while somebody waits: forth, and the signs of
// life are over, back, and they stand for longer. The lock goes on to the living.
func TestServerClockSteps(t *testing.T) {
	dir := t.TempDir()
	library, err := inject.ClockLibrary(t.Context(), dir)
	if err != nil {
		servers.Missing(t, "cc", fmt.Errorf("%w: %w", servers.ErrNotInstalled, err))
	}
	clock, err := inject.NewClock(library, dir, "clock")
	must(t, err)
	s := start(t, &redisserver.Options{Wrap: clock.Wrap()})
	b := connect(t, at(s))
	holder := acquire(t, b, lease("a", "first"))
	for i, by := range []time.Duration{-time.Minute, time.Minute, 0} {
		turn := queue(t, b, lease("a", fmt.Sprint("next", i)))
		must(t, clock.Shift(by))
		_ = b.Release(t.Context(), holder) // it may be over
		next := receive(t, turn, fmt.Sprint("after a step to ", by))
		if next.Token <= holder.Token {
			t.Errorf("token %d after %d", next.Token, holder.Token)
		}
		must(t, b.Renew(t.Context(), next))
		holder = next
	}
}
