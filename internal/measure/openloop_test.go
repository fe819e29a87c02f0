package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/baseline"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/results"
	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

func TestOpenLoop(t *testing.T) {
	in := input(newFake(), 2)
	in.Measure, in.Rate = 200*time.Millisecond, 500
	c, err := runAcquire(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(c.Latencies["open-acquire"]); n < 20 || n > 80 || len(c.Latencies["lag"]) != n {
		t.Errorf("%d cycles and %d lags at 500 a second in 100 ms", n, len(c.Latencies["lag"]))
	}
	if c.Values["offered/s"] != 500 || c.Values["drops"] != 0 {
		t.Errorf("%v", c.Values)
	}
	if v := judge(c, in); v.Overlaps+v.Tokens != 0 || v.Granted != len(c.Attempts) {
		t.Errorf("%+v", v)
	}
}

// TestOverloadIsRefused: what is offered more than the store can do is waited
// for, then dropped, and the figures are refused.
func TestOverloadIsRefused(t *testing.T) {
	in := input(newFake(), 1)
	in.Locker = slow{in.Locker, 20 * time.Millisecond}
	in.Measure, in.Rate = 200*time.Millisecond, 2000
	c, err := runAcquire(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if c.Values["drops"] == 0 || c.Values["open-refused"] != 1 {
		t.Errorf("%v", c.Values)
	}
	if worst := time.Duration(c.Values["max-ns/open-acquire"]); worst < 100*time.Millisecond {
		t.Errorf("the longest took %v since it was due", worst)
	}
}

// slow takes time for each acquire.
type slow struct {
	load.Locker
	by time.Duration
}

type slowLock struct {
	load.Lock
	by time.Duration
}

func (s slow) Lock(name string, ttl time.Duration) (load.Lock, error) {
	l, err := s.Locker.Lock(name, ttl)
	return slowLock{l, s.by}, err
}

func (l slowLock) Acquire(ctx context.Context) (load.Lease, error) {
	proc.Sleep(ctx, l.by)
	return l.Lock.Acquire(ctx)
}

func TestKeptUp(t *testing.T) {
	fast, late := []int64{100, 110, 120}, []int64{90, 90, 90}
	for name, tt := range map[string]struct {
		acquires, lags []int64
		drops          int
		want           bool
	}{
		"well":             {fast, []int64{10, 10, 10}, 0, true},
		"dropped":          {fast, []int64{10, 10, 10}, 1, false},
		"late":             {fast, late, 0, false},
		"late in the tail": {[]int64{100, 110, 120}, []int64{1, 1, 90}, 0, false},
		"nothing":          {nil, nil, 0, false},
	} {
		if got := keptUp(tt.acquires, tt.lags, tt.drops); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestCoordinatedOmission freezes a real server for 200 ms, once while the
// closed loop runs and once while the open loop does. The closed loop stops
// asking and has one slow sample for each caller, which its p99 does not
// show; of the open loop's cycles a tenth were due in the freeze. A machine
// that is itself that slow gets two more tries.
func TestCoordinatedOmission(t *testing.T) {
	s, err := redisserver.Start(t.Context(), nil)
	servers.Keep(t, "redis", s, err)
	bl, ok := baseline.ByName("redislock")
	if !ok {
		t.Fatal("there is no redislock")
	}
	locker, err := bl.Open(t.Context(), driver.Config{"address": s.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locker.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	const tries = 3
	for try := 1; ; try++ {
		switch says := omission(t, s, locker); {
		case says == "":
			return
		case try == tries:
			t.Fatal(says)
		default:
			t.Log("again: ", says)
		}
	}
}

// omission measures once, and returns what is not as it should be.
func omission(t *testing.T, s *servers.Server, locker load.Locker) string {
	t.Helper()
	in := Input{
		Workload: Workload{Clients: 2}, Locker: locker, Clock: load.NewClock(), TTL: 10 * time.Second, Seed: 1, Rate: 400,
		Names: []string{"a", "b"}, Measure: 4 * time.Second,
	}
	const frozen = 200 * time.Millisecond
	freezing := make(chan error, 1)
	open := in.Measure + in.Measure/renewShare
	go func() {
		closed := freezeAt(t.Context(), s, in.Clock, in.Measure/2, frozen)
		freezing <- errors.Join(closed, freezeAt(t.Context(), s, in.Clock, open+openFor(in)/2, frozen))
	}()
	c, err := runAcquire(t.Context(), in)
	if err := errors.Join(err, <-freezing); err != nil {
		t.Fatal(err)
	}
	q := func(op string, q float64) time.Duration {
		return time.Duration(results.Quantile(slices.Sorted(slices.Values(c.Latencies[op])), q))
	}
	t.Logf("closed loop, %d cycles: p50 %v, p99 %v, max %v", c.Cycles, q("acquire", 0.5), q("acquire", 0.99), q("acquire", 1))
	t.Logf("open loop, %d cycles: p50 %v, p99 %v, max %v; lag p99 %v, %v drops, refused %v", len(c.Latencies["open-acquire"]),
		q("open-acquire", 0.5), q("open-acquire", 0.99), q("open-acquire", 1), q("lag", 0.99), c.Values["drops"], c.Values["open-refused"])
	switch worst, tail, closed := q("open-acquire", 1), q("open-acquire", 0.99), q("acquire", 0.99); {
	case worst < frozen*3/4:
		return fmt.Sprintf("the longest of the open loop took %v, with the server frozen for %v", worst, frozen)
	case tail < frozen/2:
		return fmt.Sprintf("the open loop's p99 of %v does not show the freeze", tail)
	case closed > frozen/2:
		return fmt.Sprintf("the closed loop's p99 of %v shows the freeze", closed)
	}
	return ""
}

// freezeAt stops the server for a while at a time of the run's clock.
func freezeAt(ctx context.Context, s *servers.Server, clock load.Clock, at, d time.Duration) error {
	proc.Sleep(ctx, at-time.Duration(clock.Now()))
	if err := s.Freeze(); err != nil {
		return fmt.Errorf("freeze: %w", err)
	}
	proc.Sleep(ctx, d)
	return s.Resume()
}
