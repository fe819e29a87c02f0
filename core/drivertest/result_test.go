package drivertest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

func TestRuleIsAsGoodAsItsWorstCase(t *testing.T) {
	for _, tt := range []struct {
		cases []Outcome
		want  Outcome
	}{
		{[]Outcome{Pass, Pass}, Pass},
		{[]Outcome{Pass, NA}, Pass},
		{[]Outcome{NA, NA}, NA},
		{[]Outcome{Pass, NotRun, NA}, NotRun},
		{[]Outcome{Pass, NotRun, Fail, NA}, Fail},
	} {
		var results []CaseResult
		for _, o := range tt.cases {
			results = append(results, CaseResult{Case: Case{Name: "L1 " + o.String()}, Outcome: o, Reason: "because " + o.String()})
		}
		got := judge(ruleOf("L1"), results)
		if got.Outcome != tt.want {
			t.Errorf("cases %v make the rule %v, want %v", tt.cases, got.Outcome, tt.want)
		}
		if line := got.String(); !strings.HasPrefix(line, "L1  "+tt.want.String()) || tt.want != Pass && !strings.HasSuffix(line, tt.want.String()) {
			t.Errorf("cases %v are shown as %q", tt.cases, line)
		}
	}
}

func conform(t *testing.T, b bug, change func(*Harness)) []RuleResult {
	var results []RuleResult
	synctest.Test(t, func(t *testing.T) {
		mk := func(t T) *Harness {
			h := newFixture(t, b).harness()
			change(h)
			return h
		}
		if err := Conform(t.Context(), mk, func(r RuleResult) { results = append(results, r) }); err != nil {
			t.Errorf("Conform: %v", err)
		}
		time.Sleep(time.Hour) // until the goroutines that a bug has left behind have ended
	})
	return results
}

func TestConformGivesOneResultPerRule(t *testing.T) {
	results := conform(t, bug{plant: each(doubleGrant)}, func(*Harness) {})
	var ids []string
	for _, r := range results {
		ids = append(ids, r.Rule.ID)
		if want := r.Rule.ID == "K4"; want && (r.Outcome != Fail || !strings.Contains(r.String(), "K4 no two holders under contention")) {
			t.Errorf("with double grants: %v", r)
		}
		if r.Rule.ID == "E3" && r.Outcome != Pass {
			t.Errorf("a double grant is nothing for Observe: %v\n%s", r, r.Cases[0].Log)
		}
	}
	if want := "L1 L2 L3 L4 L5 L6 L7 L8 K1 K2 K3 K4 K5 K6 K7 K8 E1 E2 E3 E4"; strings.Join(ids, " ") != want {
		t.Errorf("results for %v, want %v", ids, want)
	}
}

func TestWhatTheHarnessLacksIsNotRun(t *testing.T) {
	results := conform(t, bug{}, func(h *Harness) { h.Store, h.Plugin, h.Host, h.Other = nil, nil, nil, nil })
	for _, r := range results {
		want := Pass
		if slices.Contains([]string{"L3", "L5", "L6", "L7", "L8", "K4", "K8", "E3"}, r.Rule.ID) {
			want = NotRun
		}
		if r.Outcome != want {
			t.Errorf("without a server, plugins and hosts to harm: %v, want %v", r, want)
		}
		for _, c := range r.Cases {
			if c.Outcome == NotRun && !strings.Contains(c.Reason, "Harness.") {
				t.Errorf("%s is not run and does not name what is missing: %q", c.Case.Name, c.Reason)
			}
			if c.Case.Name == "K6 names of two namespaces never collide" && c.Outcome != NA {
				t.Errorf("without namespaces %s is %v", c.Case.Name, c.Outcome)
			}
		}
	}
}

func TestInProcessThereIsNoPluginToKill(t *testing.T) {
	results := conform(t, bug{}, func(h *Harness) { h.Plugin, h.Host, h.InProcess = nil, nil, true })
	for _, r := range results {
		if r.Outcome == NotRun || r.Outcome == Fail {
			t.Errorf("in process: %v", r)
		}
	}
}

func TestConformSaysWhyItCannotRun(t *testing.T) {
	b := bug{plant: each(func(c *calls) {
		c.check = func(context.Context) error { return errors.Join(driver.ErrDenied, errors.New("wrong password")) }
	})}
	mk := func(t T) *Harness { return newFixture(t, b).harness() }
	err := Conform(t.Context(), mk, func(r RuleResult) { t.Errorf("a result without a backend: %v", r) })
	if err == nil || !strings.Contains(err.Error(), "wrong password") {
		t.Errorf("Conform on a backend that refuses: %v", err)
	}
}

func TestCaseThatPanicsFails(t *testing.T) {
	c := Case{Rule: "K1", Name: "K1 panics", Explain: "it must not", Run: func(T, *Harness) { panic("oops") }}
	if r := judgeCase(t, c, bug{}); r.Outcome != Fail || !strings.Contains(r.Log, "panic: oops") {
		t.Errorf("a case that panics is %v:\n%s", r.Outcome, r.Log)
	}
}

func TestEveryRuleHasCases(t *testing.T) {
	seen, names := map[string]bool{}, map[string]bool{}
	for _, c := range Cases() {
		seen[c.Rule] = true
		if names[c.Name] || c.Explain == "" || c.Run == nil {
			t.Errorf("case %q is there twice, or lacks its explanation or its function", c.Name)
		}
		names[c.Name] = true
	}
	for _, r := range Rules() {
		if !seen[r.ID] {
			t.Errorf("rule %s has no case", r.ID)
		}
	}
}
