package host

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/env"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

func TestMain(m *testing.M) {
	CallersMain()
	plugintest.Main(m)
}

func start(t *testing.T, s *env.Server) *Process {
	t.Helper()
	p, err := Start(t.Context(), Spec{
		Backend: "redis",
		Path:    plugintest.Build(t, "github.com/lockbench/lockbench/plugins/redis/lockplugin-redis"),
		Config:  driver.Config{"address": s.Addr()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return p
}

func TestKillAndFreeze(t *testing.T) {
	s, err := env.StartRedis(t.Context(), nil)
	if err != nil {
		env.Missing(t, "redis", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	const ttl = time.Second
	a, b := start(t, s), start(t, s)
	first, err := a.Acquire(t.Context(), "jobs", ttl, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Acquire(t.Context(), "jobs", ttl, 0); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("the second host got it too: %v", err)
	}
	if err := a.Freeze(); err != nil {
		t.Fatal(err)
	}
	second, err := b.Acquire(t.Context(), "jobs", ttl, 10*time.Second)
	if err != nil || second <= first {
		t.Fatalf("after the freeze: token %d after %d, %v", second, first, err)
	}
	if err := a.Resume(); err != nil {
		t.Fatal(err)
	}
	if valid, cause, err := a.State(t.Context(), "jobs"); valid || cause == "" || err != nil {
		t.Errorf("the frozen host after its TTL: valid %v, cause %q, %v", valid, cause, err)
	}
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(b.Pid(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the killed host: %v", err)
	}
	if third, err := a.Acquire(t.Context(), "jobs", ttl, 10*time.Second); err != nil || third <= second {
		t.Errorf("after the kill: token %d after %d, %v", third, second, err)
	}
}
