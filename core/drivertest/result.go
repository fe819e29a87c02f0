package drivertest

import (
	"fmt"
	"strings"
	"time"
)

// Outcome is what a case or a rule came to.
type Outcome int

// The outcomes.
const (
	Pass   Outcome = iota + 1
	Fail           // the backend breaks the rule
	NA             // a property of the backend excuses it
	NotRun         // the harness lacks what the case needs
)

// String returns "pass", "fail", "n/a" or "not run".
func (o Outcome) String() string {
	switch o {
	case Pass:
		return "pass"
	case Fail:
		return "fail"
	case NA:
		return "n/a"
	case NotRun:
		return "not run"
	}
	return fmt.Sprintf("Outcome(%d)", int(o))
}

// CaseResult is what one case came to.
type CaseResult struct {
	Case    Case
	Outcome Outcome
	// Reason is the property that excuses the case, or what the harness lacks.
	Reason string
	// Log is what the case wrote; when it failed, what the rule demands too.
	Log  string
	Took time.Duration
}

// RuleResult is the worst of what a rule's cases came to, where a rule of
// which some cases passed and the others are n/a has passed.
type RuleResult struct {
	Rule    Rule
	Outcome Outcome
	Cases   []CaseResult
}

// String is one line: the rule, the outcome, and why it is not a pass.
func (r RuleResult) String() string {
	line := fmt.Sprintf("%-3s %-8s%s", r.Rule.ID, r.Outcome, r.Rule.Title)
	switch r.Outcome {
	case Fail:
		return line + ": " + strings.Join(r.names(Fail), "; ")
	case NA, NotRun:
		return line + ": " + r.reason()
	}
	return line
}

func (r RuleResult) names(o Outcome) []string {
	var names []string
	for _, c := range r.Cases {
		if c.Outcome == o {
			names = append(names, c.Case.Name)
		}
	}
	return names
}

func (r RuleResult) reason() string {
	for _, c := range r.Cases {
		if c.Outcome == r.Outcome {
			return c.Reason
		}
	}
	return ""
}

// judge sums up the results of one rule's cases.
func judge(rule Rule, cases []CaseResult) RuleResult {
	badness := map[Outcome]int{NA: 0, Pass: 1, NotRun: 2, Fail: 3}
	sum := RuleResult{Rule: rule, Outcome: NA, Cases: cases}
	for _, c := range cases {
		if badness[c.Outcome] > badness[sum.Outcome] {
			sum.Outcome = c.Outcome
		}
	}
	return sum
}
