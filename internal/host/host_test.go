package host

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/env"
	"github.com/lockbench/lockbench/internal/load"
)

func TestMain(m *testing.M) {
	Main()
	plugintest.Main(m)
}

// TestCandidate follows a candidate over two terms and a frozen one, to its
// orderly end.
func TestCandidate(t *testing.T) {
	s, err := env.StartRedis(t.Context(), nil)
	if err != nil {
		env.Missing(t, "redis", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	const ttl = 2 * time.Second
	clock := load.NewClock()
	reports := make(chan Report, 1000)
	p, err := StartCandidate(t.Context(), Campaign{
		Spec: Spec{
			Backend: "redis", Config: driver.Config{"address": s.Addr()},
			Path: plugintest.Build(t, "github.com/lockbench/lockbench/plugins/redis/lockplugin-redis"),
		},
		Names: []string{"jobs"}, TTL: ttl,
	}, clock, func(_ *Candidate, r Report) { reports <- r })
	if err != nil {
		t.Fatal(err)
	}
	last := Report{}
	await := func(kind Kind) Report {
		t.Helper()
		for deadline := time.After(30 * time.Second); ; {
			select {
			case r := <-reports:
				// Renewals are told beside the terms.
				if r.Kind != Renewed && r.At < last.At || r.At > clock.Now() {
					t.Errorf("%+v after %+v, at %d", r, last, clock.Now())
				}
				if r.Kind != Renewed {
					last = r
				}
				if r.Kind == kind {
					return r
				}
			case <-deadline:
				t.Fatalf("no report of kind %s; the last one was %+v", kind, last)
			}
		}
	}
	first := await(Granted)
	if r := await(Renewed); r.Asked <= first.Asked || r.FreeFrom <= first.FreeFrom || r.FreeBy < r.FreeFrom {
		t.Errorf("renewed: %+v after %+v", r, first)
	}
	if err := p.Resign(); err != nil {
		t.Fatal(err)
	}
	if r := await(Resigned); r.Token != first.Token || r.Cause != "" || r.Wrote < first.At {
		t.Errorf("resigned: %+v", r)
	}
	second := await(Granted)
	if second.Token <= first.Token {
		t.Errorf("token %d after %d", second.Token, first.Token)
	}
	if err := p.Freeze(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(ttl * 6 / 5) // not to wait for something: the pause is what is tested
	resumed := clock.Now()
	if err := p.Resume(); err != nil {
		t.Fatal(err)
	}
	if r := await(Lost); r.Token != second.Token || r.Wrote > resumed || r.At < resumed || r.Cause == "" {
		t.Errorf("lost: %+v, resumed at %d", r, resumed)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
}

// TestCandidateThatCannotStart says why.
func TestCandidateThatCannotStart(t *testing.T) {
	_, err := StartCandidate(t.Context(), Campaign{Baseline: "none"}, load.NewClock(), func(*Candidate, Report) {})
	if err == nil || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("an unknown baseline: %v", err)
	}
}
