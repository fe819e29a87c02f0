package bench

import (
	"strings"
	"testing"

	"github.com/lockbench/lockbench/core/drivertest"
)

func TestConformShows(t *testing.T) {
	bad := drivertest.RuleResult{
		Rule: drivertest.Rules()[0], Outcome: drivertest.Fail,
		Cases: []drivertest.CaseResult{
			{Case: drivertest.Case{Name: "L1 one"}, Outcome: drivertest.Pass, Log: "fine"},
			{Case: drivertest.Case{Name: "L1 two"}, Outcome: drivertest.Fail, Log: "host a held it\nhost b too"},
			{Case: drivertest.Case{Name: "L1 three"}, Outcome: drivertest.NotRun, Reason: "no server"},
		},
	}
	var some, all strings.Builder
	ConformPlan{Rules: &some}.show(bad)
	ConformPlan{Rules: &all, AllCases: true}.show(bad)
	_, err := conformed([]drivertest.RuleResult{bad}, false)
	if err == nil || !strings.Contains(err.Error(), "1 of 20 rules") {
		t.Errorf("%v", err)
	}
	for _, tt := range []struct{ said, want, not string }{
		{some.String(), "L1|fail|L1 two|host b too", "L1 one"},
		{all.String(), "L1 one|fine|L1 three|no server", "nothing"},
	} {
		for want := range strings.SplitSeq(tt.want, "|") {
			if !strings.Contains(tt.said, want) || strings.Contains(tt.said, tt.not) {
				t.Errorf("%q does not say %q, or says %q", tt.said, want, tt.not)
			}
		}
	}
}

func TestConformRequires(t *testing.T) {
	var results []drivertest.RuleResult
	for i, o := range []drivertest.Outcome{drivertest.Pass, drivertest.NA, drivertest.NotRun} {
		results = append(results, drivertest.RuleResult{Rule: drivertest.Rules()[i], Outcome: o})
	}
	for _, require := range []bool{false, true} {
		o, err := conformed(results, require)
		if want := "1 passed, 0 failed; 1 could not be checked, 1 do not apply"; (err != nil) != require || !strings.Contains(o.text, want) {
			t.Errorf("require %v: %v, %q", require, err, o.text)
		}
	}
}
