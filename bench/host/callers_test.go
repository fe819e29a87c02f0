package host

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/env"
	"github.com/lockbench/lockbench/bench/load"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

func TestCallers(t *testing.T) {
	s, err := env.StartRedis(t.Context(), nil)
	if err != nil {
		env.Missing(t, "redis", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	spec := Spec{
		Backend: "redis",
		Path:    plugintest.Build(t, "github.com/lockbench/lockbench/plugins/redis/lockplugin-redis"),
		Config:  driver.Config{"address": s.Addr()},
	}
	clock := load.NewClock()
	lockIn := func() (*Callers, load.Lock) {
		h, err := StartCallers(t.Context(), spec, clock)
		if err != nil {
			t.Fatal(err)
		}
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
	const closely = int64(time.Millisecond) // what the clocks of two processes may differ by
	if asked < before-closely || answered < asked || answered > clock.Now()+closely {
		t.Errorf("asked at %d, answered at %d, by the run's clock between %d and %d", asked, answered, before, clock.Now())
	}
	waiting, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := lockB.Acquire(waiting); !errors.Is(err, context.Canceled) {
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
	if _, err := lockA.Acquire(t.Context()); !errors.Is(err, errEnded) {
		t.Errorf("a host that has ended: %v", err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Error(err)
	}
	missing := spec
	missing.Path = "/nowhere/lockplugin-redis"
	if _, err := StartCallers(t.Context(), missing, clock); err == nil {
		t.Error("a plugin that is not there was started")
	}
}
