package witness

import (
	"context"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/env"
	"github.com/lockbench/lockbench/bench/fault"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

func TestMain(m *testing.M) {
	Main()
	plugintest.Main(m)
}

const ttl = time.Second

func start(t *testing.T, s *env.Server, host int, dir string) *Process {
	t.Helper()
	p, err := Start(t.Context(), Spec{
		Backend: "redis", Host: host, Resources: Resources{Dir: dir},
		Path:   plugintest.Build(t, "github.com/lockbench/lockbench/bench/safety/planted"), // without a bug
		Config: driver.Config{"address": s.Addr()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

func await(t *testing.T, p *Process, what string, until func(Seen) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := p.Await(ctx, until); err != nil {
		t.Fatalf("%s: %v, %+v", what, err, p.Seen())
	}
}

// TestFrozenHolder: what a witness tells of a lease that it lost while it was
// frozen, of the one that another witness got, and of the writes of both.
func TestFrozenHolder(t *testing.T) {
	s, err := env.StartRedis(t.Context(), nil)
	if err != nil {
		env.Missing(t, "redis", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	a, b := start(t, s, 0, dir), start(t, s, 1, dir)
	names := []string{"witness-one"}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(a.Acquire(names, 0, ttl, 10*time.Second))
	await(t, a, "a holds it and has written", func(s Seen) bool { return s.Held() == 1 && len(s.Writes) >= 2 })
	time.Sleep(prepare / 2) // it prepares the next write, which will be late
	must(fault.Freeze(a.Pid()))
	must(b.Acquire(names, 0, ttl, 10*time.Second))
	await(t, b, "b holds it and has written", func(s Seen) bool { return s.Held() == 1 && len(s.Writes) >= 2 })
	must(fault.Resume(a.Pid()))
	await(t, a, "a learns of its loss", func(s Seen) bool { return s.Held() == 0 })
	await(t, a, "its late writes", func(s Seen) bool { return len(s.Writes) >= 4 })
	must(b.Release(t.Context()))

	old, next := a.Seen().Leases[0], b.Seen().Leases[0]
	if old.DoneNs == 0 || old.Cause != "expired" || old.ValidNs > next.GrantedNs || old.Token >= next.Token {
		t.Errorf("the frozen one %+v, the next %+v", old, next)
	}
	if next.ReleaseNs < next.GrantedNs || next.ReleasedNs < next.ReleaseNs || next.Host != 1 {
		t.Errorf("the next %+v", next)
	}
	for _, w := range a.Seen().Writes {
		if late := w.SentNs > next.GrantedNs; w.Refused != (late && w.Guarded) {
			t.Errorf("late %v: %+v", late, w)
		}
	}
}

func TestBadPluginIsAnError(t *testing.T) {
	if _, err := Start(t.Context(), Spec{Backend: "redis", Path: "/nowhere/lockplugin-redis"}); err == nil {
		t.Error("a witness without a plugin has started")
	}
}
