package host

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/check"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/results"
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

// TestCycles: two processes cycle on the same few locks, and what they record
// is of one clock and excludes each other.
func TestCycles(t *testing.T) {
	spec, clock := redisSpec(t), load.NewClock()
	hosts := make([]*Process, 2)
	for i := range hosts {
		hosts[i] = begin(t, spec, clock)
	}
	from := clock.Now()
	until := from + int64(300*time.Millisecond)
	cycles := load.Cycles{Names: []string{"a", "b"}, TTL: 10 * time.Second, Callers: 3, From: from, Until: until}
	section := results.Section{Backend: "redis", Kind: results.KindPlugin, Fencing: "durable", Names: cycles.Names}
	var all []results.Attempt
	load.Workers(len(hosts), func(i int) {
		own := cycles
		own.First = i * own.Callers
		if err := hosts[i].Cycle(t.Context(), own); err != nil {
			t.Error(err)
		}
	})
	by := map[int32]int{}
	for _, h := range hosts {
		attempts, err := h.Attempts()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range attempts {
			by[a.Client]++
			if a.Asked < from-closely || a.Asked > until+closely || a.Done > clock.Now()+closely {
				t.Fatalf("%+v is not between %d and %d", a, from, until)
			}
		}
		all = append(all, attempts...)
	}
	if len(by) != 6 {
		t.Errorf("attempts by caller: %v", by)
	}
	checker := check.New()
	checker.Add(section, all)
	if v := checker.Verdict(); v.Unsafe() > 0 || v.Granted() != len(all) {
		t.Errorf("%+v", v)
	}

	if err := hosts[1].Kill(); err != nil {
		t.Fatal(err)
	}
	if err := hosts[1].Cycle(t.Context(), cycles); err == nil {
		t.Error("a process that has ended cycles")
	}
	if _, err := hosts[1].Attempts(); !errors.Is(err, proc.ErrEnded) {
		t.Errorf("attempts of a process that has ended: %v", err)
	}
	for _, h := range hosts {
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
