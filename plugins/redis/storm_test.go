package redis

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

// TestStorm lets 32 simulated processes compete for one lock and end at random moments. It checks
// that no two of them hold the lock at a time.
func TestStorm(t *testing.T) {
	s := start(t, nil)
	backendtest.Storm(t, func() (driver.Backend, error) { return Open(&Options{Address: []string{s.Addr()}}) }, 8*time.Second,
		func() time.Duration { return 300*time.Millisecond + rand.N(time.Second).Truncate(time.Millisecond) })
}

// The server's clock is changed while an owner waits. A step forward makes all signs of life
// expire, and a step back makes them valid for too long. The waiter must still get the lock.
func TestServerClockSteps(t *testing.T) {
	dir := t.TempDir()
	library, err := inject.ClockLibrary(t.Context(), dir)
	if err != nil {
		servers.Missing(t, "cc", fmt.Errorf("%w: %w", servers.ErrNotInstalled, err))
	}
	clock, err := inject.NewClock(library, dir, "clock")
	must(t, err)
	s := start(t, &redisserver.Options{Wrap: clock.Wrap()})
	b, c := connect(t, at(s)), plain(t, s)
	holder := acquire(t, b, lease("a", "first"))
	for i, by := range []time.Duration{-time.Minute, time.Minute, 0} {
		turn := queue(t, b, lease("a", fmt.Sprint("next", i)))
		must(t, clock.Shift(by))
		eventually(t, "the server sees it", func() bool { // not all threads see it at once
			now, err := c.Time(t.Context()).Result()
			must(t, err)
			return (time.Until(now) - by).Abs() < 10*time.Second
		})
		_ = b.Release(t.Context(), holder) // the lease may have expired
		next := receive(t, turn, fmt.Sprint("after a step to ", by))
		if next.Token <= holder.Token {
			t.Errorf("token %d after %d", next.Token, holder.Token)
		}
		must(t, b.Renew(t.Context(), next))
		holder = next
	}
}
