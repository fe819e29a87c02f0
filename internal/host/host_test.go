package host

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/load"
	"github.com/lockbench/lockbench/internal/record"
)

func TestMain(m *testing.M) {
	Main()
	plugintest.Main(m)
}

// TestCandidate follows a candidate over two terms and a frozen one, to its
// orderly end.
func TestCandidate(t *testing.T) {
	const ttl = 2 * time.Second
	clock := load.NewClock()
	terms := make(chan Term, 1000)
	p, err := Start(t.Context(), redisSpec(t), clock)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Campaign(Campaign{Names: []string{"jobs"}, TTL: ttl}, func(s Term) { terms <- s }); err != nil {
		t.Fatal(err)
	}
	await := func(what string, is func(Term) bool) (s Term) {
		t.Helper()
		for deadline := time.After(30 * time.Second); ; {
			select {
			case next := <-terms:
				if next.Answered < s.Answered || next.Sent < s.Sent || max(next.Answered, next.Sent, next.Done) > clock.Now() {
					t.Errorf("%+v after %+v, at %d", next, s, clock.Now())
				}
				if s = next; is(s) {
					return s
				}
			case <-deadline:
				t.Fatalf("not %s; the last one was %+v", what, s)
			}
		}
	}
	granted := func(s Term) bool { return s.Outcome == record.Granted && s.End == record.EndOpen }
	first := await("granted", granted)
	renewed := await("renewed", func(s Term) bool { return s.Sent > first.Answered })
	if renewed.Answered != first.Answered || renewed.ExpiresFrom <= first.ExpiresFrom || renewed.ExpiresBy < renewed.ExpiresFrom {
		t.Errorf("renewed: %+v after %+v", renewed, first)
	}
	if err := p.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	resigned := await("resigned", func(s Term) bool { return s.End != record.EndOpen })
	if resigned.Token != first.Token || resigned.End != record.EndReleased || resigned.Cause != "" || resigned.Ended < first.Answered || resigned.Done < resigned.Ended {
		t.Errorf("resigned: %+v", resigned)
	}
	second := await("granted", granted)
	if second.Token <= first.Token || second.Answered < resigned.Done {
		t.Errorf("%+v after %+v", second, first)
	}
	if err := p.Freeze(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(ttl * 6 / 5) // not to wait for something: the pause is what is tested
	resumed := clock.Now()
	if err := p.Resume(); err != nil {
		t.Fatal(err)
	}
	lost := await("lost", func(s Term) bool { return s.End != record.EndOpen })
	if lost.Token != second.Token || lost.End != record.EndLost || lost.Ended > resumed || lost.Done < resumed || lost.Cause == "" {
		t.Errorf("lost: %+v, resumed at %d", lost, resumed)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
}

// TestHostThatCannotStart says why.
func TestHostThatCannotStart(t *testing.T) {
	_, err := Start(t.Context(), Spec{Baseline: "none"}, load.NewClock())
	if err == nil || !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("an unknown baseline: %v", err)
	}
}
