package drivertest

import (
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/internal/proc"
)

type stalledHeartbeat struct {
	heartbeat
	proc.Stall
}

func (s stalledHeartbeat) Stalled(from, to time.Time) time.Duration {
	both := min(to.UnixNano(), s.To.UnixNano()) - max(from.UnixNano(), s.From.UnixNano())
	return s.heartbeat.Stalled(from, to) + time.Duration(max(0, both))
}

func stall(t T, d time.Duration) {
	x, now := t.(*trial), time.Now()
	x.heartbeat = stalledHeartbeat{x.heartbeat, proc.Stall{From: now.Add(-d), To: now}}
}

func TestLimitsDoNotCountStandstill(t *testing.T) {
	const d = 300 * time.Millisecond
	looks := func(t T, _ *Harness) {
		start := time.Now()
		pause(t, time.Second)
		stall(t, d)
		end := time.Now()
		if took := ran(t, start, end); took != time.Second-d {
			t.Errorf("of a second the process ran for %v", took)
		}
		if took := ran(t, end.Add(-100*time.Millisecond), end); took != 0 {
			t.Errorf("of the last 100ms the process ran for %v", took)
		}
		if took := ran(t, start, end.Add(-d)); took != time.Second-d {
			t.Errorf("before it stalled the process ran for %v", took)
		}
		if _, ok := receive(t, make(chan int), d); ok || time.Since(end) != d {
			t.Errorf("nothing was to come within %v, and it has: %t, after %v", d, ok, time.Since(end))
		}
	}
	if r := judgeCase(t, Case{Rule: "K1", Name: "K1 looks", Run: looks}, bug{}); r.Outcome != Pass {
		t.Errorf("%v\n%s", r.Outcome, r.Log)
	}
}

// A case runs again only if the process stalled, and fails if the process stalls in every run.
func TestStandstillIsNotJudged(t *testing.T) {
	for _, tt := range []struct {
		name   string
		stands func(run int) bool
		errs   bool // the case also fails for a reason other than time
		runs   int
		want   Outcome
		says   string
	}{
		{"never", func(int) bool { return false }, false, 1, Fail, "too late"},
		{"once", func(run int) bool { return run == 1 }, false, 2, Fail, "run 1 could not be judged"},
		{"always", func(int) bool { return true }, false, tries, Fail, "too busy to judge"},
		{"but fails otherwise", func(int) bool { return true }, true, 1, Fail, "two holders"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			runs := 0
			c := Case{Rule: "K1", Name: "K1 late", Explain: "it must not", Run: func(t T, _ *Harness) {
				runs++
				pause(t, time.Second)
				if tt.stands(runs) {
					stall(t, 200*time.Millisecond)
				}
				if tt.errs {
					t.Errorf("two holders")
				}
				mistimed(t, time.Second, "too late")
			}}
			r := judgeCase(t, c, bug{})
			if runs != tt.runs || r.Outcome != tt.want || !strings.Contains(r.Log, tt.says) || !strings.Contains(r.Log, c.Explain) {
				t.Errorf("after %d runs %v:\n%s", runs, r.Outcome, r.Log)
			}
		})
	}
	run := 0
	c := Case{Rule: "K1", Name: "K1 late once", Run: func(t T, _ *Harness) {
		if run++; run == 1 {
			pause(t, time.Second)
			stall(t, 200*time.Millisecond)
			mistimed(t, time.Second, "too late")
		}
	}}
	if r := judgeCase(t, c, bug{}); r.Outcome != Pass || !strings.Contains(r.Log, "run 1 could not be judged") {
		t.Errorf("a second run that passes: %v\n%s", r.Outcome, r.Log)
	}
}
