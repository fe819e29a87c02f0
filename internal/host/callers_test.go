package host

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/proc"
)

// closely is what the clocks of two processes may differ by.
const closely = int64(time.Millisecond)

// redisSpec is that of a server of the test's own.
func redisSpec(t *testing.T) Spec {
	t.Helper()
	s := redisServer(t)
	return Spec{
		Backend: "redis",
		Path:    plugintest.Build(t, "github.com/lockbench/lockbench/plugins/redis/lockplugin-redis"),
		Config:  driver.Config{"address": s.Addr()},
	}
}

// begin starts a host that tells its times by clock.
func begin(t *testing.T, s Spec, clock load.Clock) *Process {
	t.Helper()
	s.Zero = proc.MachineClock().Of(clock.Started())
	p, err := Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCallers(t *testing.T) {
	spec := redisSpec(t)
	clock := load.NewClock()
	lockIn := func() (*Process, load.Lock) {
		h := begin(t, spec, clock)
		lock, err := h.Lock("jobs", 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return h, lock
	}
	a, lockA := lockIn()
	b, lockB := lockIn()

	before := clock.Now()
	lease, err := lockA.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	asked, answered := lease.(load.Timed).Granted()
	if asked < before-closely || answered < asked || answered > clock.Now()+closely {
		t.Errorf("asked at %d, answered at %d, by the run's clock between %d and %d", asked, answered, before, clock.Now())
	}
	waiting, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := lockB.Acquire(waiting); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the other host's caller gave up: %v", err)
	}
	granted := make(chan load.Lease, 1)
	go func() {
		other, err := lockB.Acquire(t.Context())
		if err != nil {
			t.Error(err)
		}
		granted <- other
	}()
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	other := <-granted
	if other == nil || other.Token() <= lease.Token() {
		t.Fatalf("%v after %v", other, lease)
	}
	ended, _ := lease.(load.Timed).Released()
	if _, next := other.(load.Timed).Granted(); next < ended-closely {
		t.Errorf("granted at %d, before it was released at %d", next, ended)
	}
	if err := a.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := lockA.Acquire(t.Context()); !errors.Is(err, proc.ErrEnded) {
		t.Errorf("a host that has ended: %v", err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
