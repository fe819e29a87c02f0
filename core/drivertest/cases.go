package drivertest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// Need is an ability of the [Harness] that a case requires.
type Need string

// The abilities, with the texts that name them in results.
const (
	NeedStore  Need = "a server that may be stopped (Harness.Store)"
	NeedPlugin Need = "a plugin process that may be killed (Harness.Plugin)"
	NeedHost   Need = "host processes (Harness.Host)"
	NeedOther  Need = "a second namespace (Harness.Other)"
	NeedDenied Need = "a client that the server refuses (Harness.Denied)"
)

// Case checks one aspect of a rule.
type Case struct {
	Rule string // "L3"
	Name string // begins with the rule, such as "L3 done before deadline when the plugin hangs"
	// Explain says what the rule demands, and why. It is printed when the case fails.
	Explain string
	Needs   []Need
	// Excuse returns the name of the property that excuses a backend from the
	// case, or "" if the backend must pass. A nil Excuse excuses no backend.
	Excuse func(driver.Properties) string
	// Alone means that no other case may run at the same time.
	Alone bool
	// Limit is the time after which the case counts as hanging. Zero means 60 s.
	Limit time.Duration
	Run   func(t T, h *Harness) // called by [Run] and [Conform] only
}

// Cases returns all cases, ordered by rule.
func Cases() []Case {
	all := slices.Concat(
		deadlineCases(), renewalCases(), tokenCases(), releaseCases(), processCases(), refusalCases(), withdrawCases(),
		waitCases(), grantedCases(), queueCases(), nameCases(), outageCases(), electionCases(), observeCases(),
	)
	for i, c := range all {
		all[i].Rule, _, _ = strings.Cut(c.Name, " ")
	}
	slices.SortStableFunc(all, func(a, b Case) int { return ruleIndex(a.Rule) - ruleIndex(b.Rule) })
	return all
}

// Rule is one of the rules that backends must keep.
type Rule struct {
	ID    string // "L3"
	Title string // a few words
}

// Rules returns the rules in their order.
func Rules() []Rule {
	return []Rule{
		{"L1", "every grant has its own owner; no reentrancy"},
		{"L2", "deadlines count from before sending; the store keeps the TTL"},
		{"L3", "done at or before the deadline, with a cause"},
		{"L4", "suspect, then held or lost; retried until the deadline"},
		{"L5", "renewal in time, driven by the host"},
		{"L6", "tokens rise"},
		{"L7", "release is idempotent and compares owner and token"},
		{"L8", "a lease outlives its plugin"},
		{"K1", "acquire waits until grant, end of ctx, or permanent error"},
		{"K2", "try decides once, leaves nothing, says who holds"},
		{"K3", "after an error the attempt owns nothing"},
		{"K4", "the store decides after every wait"},
		{"K5", "one contender per host, one wake-up, in order"},
		{"K6", "names are kept and never collide"},
		{"K7", "bad TTLs are refused, none is rounded"},
		{"K8", "store down: try fails fast, acquire goes on"},
		{"E1", "campaigns again after every lost term"},
		{"E2", "resigns after the callback, lost terms expire"},
		{"E3", "observe: every change in order, without being a candidate"},
		{"E4", "one start and one stop per term"},
	}
}

func ruleIndex(id string) int {
	return slices.IndexFunc(Rules(), func(r Rule) bool { return r.ID == id })
}

func ruleOf(id string) Rule { return Rules()[ruleIndex(id)] }

// lacks returns the outcome and the reason if h lacks one of the needs. Otherwise the reason is "".
func (h *Harness) lacks(needs []Need) (Outcome, string) {
	has := map[Need]bool{NeedStore: h.Store != nil, NeedPlugin: h.Plugin != nil, NeedHost: h.Host != nil, NeedOther: h.Other != nil, NeedDenied: h.Denied != nil}
	for _, n := range needs {
		process := n == NeedPlugin || n == NeedHost
		switch {
		case has[n]:
		case n == NeedOther:
			return NA, "the backend has no namespaces"
		case n == NeedDenied:
			return NA, "no client is known that the server refuses (Harness.Denied)"
		case !process && h.props.Scope == driver.ScopeHost:
			return NA, "scope host: the store is inside the plugin, no other process reaches it"
		case n == NeedStore && h.NoServer:
			return NA, "the store has no server"
		case process && h.InProcess:
			return NA, "in process: there is no plugin process"
		default:
			return NotRun, "the harness lacks " + string(n)
		}
	}
	return 0, ""
}

// The function when is for an Excuse. It returns the reason if the backend is excused.
func when(excused bool, reason string) string {
	if excused {
		return reason
	}
	return ""
}

func needsCapability(capability driver.Capability) func(driver.Properties) string {
	return func(p driver.Properties) string {
		return when(!slices.Contains(p.Capabilities, capability), "capability "+string(capability)+" is not declared")
	}
}

// Outcome is the result of a case or a rule.
type Outcome int

// The outcomes.
const (
	Pass   Outcome = iota + 1
	Fail           // the backend breaks the rule
	NA             // a property of the backend, or of the harness, excuses it from the case
	NotRun         // the harness lacks what the case needs
)

// String returns "pass", "fail", "n/a" or "not run".
func (o Outcome) String() string {
	return [...]string{Pass: "pass", Fail: "fail", NA: "n/a", NotRun: "not run"}[o]
}

// CaseResult is the result of one case.
type CaseResult struct {
	Case    Case
	Outcome Outcome
	// Reason names the property that excuses the case, or the ability that the harness lacks.
	Reason string
	// Log is the output of the case. If the case failed, Log includes Explain.
	Log  string
	Took time.Duration
}

// RuleResult is the result of a rule. A rule has passed if one of its cases passed, and every other
// case passed or is n/a.
type RuleResult struct {
	Rule    Rule
	Outcome Outcome
	Cases   []CaseResult
}

// String returns one line with the rule and the outcome and, if that is not a pass, the reason.
func (r RuleResult) String() string {
	line := fmt.Sprintf("%-3s %-8s%s", r.Rule.ID, r.Outcome, r.Rule.Title)
	var names, reasons []string
	for _, c := range r.Cases {
		if c.Outcome == r.Outcome {
			names, reasons = append(names, c.Case.Name), append(reasons, c.Reason)
		}
	}
	switch {
	case r.Outcome == Fail:
		return line + ": " + strings.Join(names, "; ")
	case r.Outcome != Pass && len(reasons) > 0:
		return line + ": " + reasons[0]
	}
	return line
}

func judge(rule Rule, cases []CaseResult) RuleResult {
	sum := RuleResult{Rule: rule, Outcome: NA, Cases: cases}
	for _, o := range []Outcome{Pass, NotRun, Fail} { // the worst is the last
		if slices.ContainsFunc(cases, func(c CaseResult) bool { return c.Outcome == o }) {
			sum.Outcome = o
		}
	}
	return sum
}
