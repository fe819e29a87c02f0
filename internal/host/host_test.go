package host

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/results"
)

func TestMain(m *testing.M) {
	Main()
	plugintest.Main(m)
}

// TestTerms follows a host that holds a lock for ever, is told to release it, and
// asks again.
func TestTerms(t *testing.T) {
	clock := load.NewClock()
	leases := make(chan results.Hold, 1000)
	p := begin(t, redisSpec(t), clock)
	p.Follow(func(l *results.Hold, _ *results.Call) {
		if l != nil {
			leases <- *l
		}
	})
	work := func() {
		t.Helper()
		err := p.Work(Workload{Kind: results.OpLock, Name: "jobs", Names: 1, Callers: 1, TTL: ttl, Look: time.Millisecond, Limit: Forever, Hold: Forever})
		if err != nil {
			t.Fatal(err)
		}
	}
	work()
	await := func(what string, is func(results.Hold) bool) (l results.Hold) {
		t.Helper()
		for deadline := time.After(30 * time.Second); ; {
			select {
			case next := <-leases:
				if next.GrantedNs < l.GrantedNs || max(next.GrantedNs, next.DoneNs, next.ReleasedNs) > clock.Now() {
					t.Errorf("%+v after %+v, at %d", next, l, clock.Now())
				}
				if l = next; is(l) {
					return l
				}
			case <-deadline:
				t.Fatalf("not %s; the last one was %+v", what, l)
			}
		}
	}
	first := await("granted", func(l results.Hold) bool { return l.Held() })
	renewed := await("renewed", func(l results.Hold) bool { return len(l.Renewals) > 0 })
	if last := renewed.Renewals[0]; renewed.GrantedNs != first.GrantedNs || first.SentNs > first.GrantedNs || last[0] < first.SentNs || last[1] < last[0] {
		t.Errorf("renewed: %+v after %+v", renewed, first)
	}
	if err := p.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	resigned := await("released", func(l results.Hold) bool { return l.ReleasedNs > 0 })
	if resigned.Token != first.Token || resigned.Cause != "" || resigned.ReleaseNs < first.GrantedNs || resigned.ReleasedNs < resigned.ReleaseNs {
		t.Errorf("resigned: %+v", resigned)
	}
	work()
	second := await("granted", func(l results.Hold) bool { return l.Held() })
	if second.Token <= first.Token || second.GrantedNs < resigned.ReleasedNs {
		t.Errorf("%+v after %+v", second, first)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
}

// TestHostThatCannotStart says why.
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
