package host

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

func TestMain(m *testing.M) {
	Main()
	plugintest.Main(m)
}

func TestHostThatCannotStart(t *testing.T) {
	_, err := Start(t.Context(), Spec{Baseline: "none"})
	if err == nil || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("an unknown baseline: %v", err)
	}
	if _, err := Start(t.Context(), Spec{Backend: "redis", Path: "/nowhere/lockplugin-redis"}); err == nil {
		t.Error("a host without a plugin has started")
	}
}

func TestUse(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	s := redisServer(t)
	host, plugin, err := start(t, s, 0, t.TempDir()).Use(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if host.Goroutines == 0 || host.Heap == 0 || plugin.Goroutines != 0 {
		t.Errorf("%v; %v", host, plugin)
	}
	for _, u := range []Use{host, plugin} {
		if u.Resident < 1<<20 || u.Descriptors < 3 || u.Threads == 0 {
			t.Errorf("%+v", u)
		}
	}
}

const (
	ttl     = time.Second
	timeout = 30 * time.Second
)

func redisServer(t *testing.T) *servers.Server {
	t.Helper()
	s, err := redisserver.Start(t.Context(), nil)
	servers.Keep(t, "redis", s, err)
	return s
}

func start(t *testing.T, s *servers.Server, host int, dir string) *Process {
	t.Helper()
	p, err := Start(t.Context(), Spec{
		Backend: "redis", Host: host, Resources: Resources{Dir: dir},
		Path:   plugintest.Build(t, "github.com/lockbench/lockbench/bench/internal/faults/planted"), // with no bug chosen
		Config: driver.Config{"address": s.Addr()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

func await(t *testing.T, p *Process, what string, until func(results.Seen) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := p.Await(ctx, until); err != nil {
		t.Fatalf("%s: %v, %+v", what, err, p.Seen())
	}
}

// TestFrozenHolder checks what a host reports if it is frozen until another host has its lock.
func TestFrozenHolder(t *testing.T) {
	s := redisServer(t)
	dir := t.TempDir()
	a, b := start(t, s, 0, dir), start(t, s, 1, dir)
	const tries = 10
	for try := range tries {
		if frozen(t, a, b, fmt.Sprintf("frozen-%d-", try)) {
			return
		}
		a.Forget()
		b.Forget()
	}
	t.Fatalf("in none of %d rounds was the holder frozen while it prepared a write", tries)
}

// frozen freezes host a while it prepares a write under the lock, and checks the reports of hosts a
// and b. If host a was not preparing a write, frozen returns false.
func frozen(t *testing.T, a, b *Process, prefix string) bool {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	wrote := func(s results.Seen) bool { return len(s.Holds) == 1 && len(s.Writes) >= 2 }
	must(a.Acquire(Locks(prefix, 1, ttl), timeout))
	await(t, a, "a holds it and has written", wrote)
	time.Sleep(prepare / 2) // host a begins to prepare the next write
	written := a.Seen().Writes
	must(proc.Freeze(a.Pid()))
	if proc.Now() >= written[len(written)-1].DoneNs+int64(prepare) {
		must(proc.Resume(a.Pid())) // b cannot write if a was frozen during a write
		must(a.Release(t.Context()))
		return false
	}
	must(b.Acquire(Locks(prefix, 1, ttl), timeout))
	await(t, b, "b holds it and has written", wrote)
	must(proc.Resume(a.Pid()))
	await(t, a, "a learns of its loss", func(s results.Seen) bool { return s.Held() == 0 })
	soon, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_ = a.Await(soon, func(s results.Seen) bool { return len(s.Writes) >= 4 }) // the writes are checked below
	must(a.Release(t.Context()))
	must(b.Release(t.Context()))

	old, next := a.Seen().Holds[0], b.Seen().Holds[0]
	if old.DoneNs == 0 || old.Cause != "expired" || old.ValidNs > next.GrantedNs || old.Token >= next.Token {
		t.Errorf("the frozen one %+v, the next %+v", old, next)
	}
	if next.ReleaseNs < next.GrantedNs || next.ReleasedNs < next.ReleaseNs || next.Host != 1 {
		t.Errorf("the next %+v", next)
	}
	lates := 0
	for _, w := range a.Seen().Writes {
		late := w.SentNs > next.GrantedNs
		if w.Refused != (late && w.Guarded) {
			t.Errorf("late %v: %+v", late, w)
		}
		if late {
			lates++
		}
	}
	return lates > 0
}

// TestReleaseFrom releases the locks with numbers 1 and higher, and then lock 0. After each of
// these steps, Forget must keep only the reports about locks that are still held.
func TestReleaseFrom(t *testing.T) {
	s := redisServer(t)
	p := start(t, s, 0, t.TempDir())
	if err := p.Acquire(Locks("release-", 3, ttl), timeout); err != nil {
		t.Fatal(err)
	}
	await(t, p, "it holds all", func(s results.Seen) bool { return s.Held() == 3 })
	for _, step := range []struct{ from, left int }{{1, 1}, {0, 0}} {
		if err := p.ReleaseFrom(t.Context(), step.from); err != nil {
			t.Fatal(err)
		}
		if p.Forget(); len(p.Seen().Holds) != step.left {
			t.Errorf("after the release from %d on: %+v", step.from, p.Seen())
		}
	}
}
