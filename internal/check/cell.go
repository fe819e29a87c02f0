package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/results"
)

// Class is the verdict on one backend under one fault.
type Class string

// The classes. Only ClassBroken is a violation; a cell in which nothing was
// granted is none of the others.
const (
	ClassHeld       Class = "held"
	ClassToken      Class = "held by token only"
	ClassDocumented Class = "broken as documented"
	ClassBroken     Class = "broken"
	ClassNotRun     Class = "not run"
	ClassInvalid    Class = "invalid"
)

// Cell is what was found of one backend under one fault, over all rounds.
// Times are nanoseconds.
type Cell struct {
	Backend string `json:"backend"`
	Fault   string `json:"fault"`
	Class   Class  `json:"verdict"`
	// Why is what is missing of a cell that was not run, why its rounds
	// failed, or what is documented.
	Why     string `json:"why,omitempty"`
	Control bool   `json:"control,omitempty"`
	Rounds  int    `json:"rounds"`
	Hits    int    `json:"locks_hit"`
	Grants  int    `json:"grants"`
	// The violations of each rule.
	Overlaps int `json:"overlaps"`
	Tokens   int `json:"tokens_not_rising"`
	Linear   int `json:"not_linearizable"`
	Signals  int `json:"lost_signal_late"`
	// Beyond are those of Linear that are wrong even for a store that may have
	// forgotten its grants when the fault was injected: no documentation covers them.
	Beyond int `json:"beyond_forgetting,omitempty"`
	// Undecided are the histories whose order was not found in time.
	Undecided int `json:"undecided,omitempty"`
	// Belief is for how long at most two found the lock theirs.
	Belief int64 `json:"belief_overlap_max_ns"`
	// Margin is the smallest, of Margins, between learning of a loss and the
	// next grant.
	Margin  int64 `json:"lost_signal_margin_min_ns"`
	Margins int   `json:"lost_signal_margins"`
	// Lag is the longest until a holder that goes on after a freeze learns of
	// the loss.
	Lag int64 `json:"freeze_lag_max_ns,omitempty"`
	// StaleGuarded and StaleBare are late writes that went through, with the
	// guard and without; Refused those that the guard refused.
	StaleGuarded int `json:"stale_writes_guarded"`
	StaleBare    int `json:"stale_writes_unguarded"`
	Refused      int `json:"stale_writes_refused"`
	// FalseLosses are leases that were lost to a fault that none should be lost
	// to.
	FalseLosses int `json:"false_losses"`
	// Unserved are those of FalseLosses that break a claim, and free locks that
	// were granted late.
	Unserved int `json:"unserved,omitempty"`
	// Unavailable is the longest from the injection to the next grant of a lock,
	// Recovery the longest from the end of the fault to a grant that it had
	// held up.
	Unavailable int64 `json:"unavailable_max_ns,omitempty"`
	Recovery    int64 `json:"recovery_max_ns,omitempty"`
	// Violations say who and when, at most three of each rule.
	Violations []string `json:"violations,omitempty"`

	kind     results.Kind
	fencing  string
	made     []claim.Condition
	failures []string
	kept     map[claim.Rule]int
}

// Unsafe reports whether a claim of the backend is broken.
func (c Cell) Unsafe() bool {
	return c.Class == ClassBroken && !c.Control && c.kind == results.KindPlugin
}

// Invalid names the cells of which nothing can be said, with the cause.
func (v Verdict) Invalid() []string {
	var out []string
	for _, c := range v.Cells {
		if c.Class == ClassInvalid {
			out = append(out, fmt.Sprintf("%s under %s: %s", c.Backend, c.Fault, cmp.Or(c.Why, "nothing was granted")))
		}
	}
	return out
}

// Cells judges the rounds of a run, in the order in which its cells were
// begun.
func Cells(rounds []results.Round) []Cell {
	var out []*Cell
	index := map[[2]string]*Cell{}
	for _, r := range rounds {
		key := [2]string{r.Backend, r.Fault}
		c := index[key]
		if c == nil {
			c = &Cell{
				Backend: r.Backend, Fault: r.Fault, Control: r.Control, kind: r.Kind, fencing: r.Fencing, made: r.Conditions,
			}
			index[key] = c
			out = append(out, c)
		}
		c.add(r)
	}
	cells := make([]Cell, len(out))
	for i, c := range out {
		c.conclude()
		cells[i] = *c
	}
	return cells
}

// add judges one round.
func (c *Cell) add(r results.Round) {
	if r.Missing != "" {
		c.Class, c.Why = ClassNotRun, r.Missing
		return
	}
	if r.Failure != "" && !slices.Contains(c.failures, r.Failure) {
		c.failures = append(c.failures, r.Failure)
	}
	c.Rounds++
	c.Hits += r.Hits
	c.Grants += len(r.Holds)
	t := &table{c, r, time.Duration(r.TTLms) * time.Millisecond}
	holds := byName(r.Holds)
	for name := range r.Names {
		t.name(name, holds[name])
	}
	t.effects()
}

// conclude turns counts into a class.
func (c *Cell) conclude() {
	if c.Class == ClassNotRun && c.Rounds == 0 {
		return
	}
	terms := claim.TermsOf(c.Backend)
	known, isKnown := terms.Exempt(claim.Overlap, c.made)
	_, noTokens := terms.Exempt(claim.Token, c.made)
	double := c.Overlaps + c.Linear + c.Signals
	fenced := c.Tokens == 0 && c.StaleGuarded == 0 && c.fencing != "none"
	switch {
	case c.Grants == 0:
		c.Class = ClassInvalid
	case c.Beyond+c.Unserved > 0:
		c.Class = ClassBroken
	case double == 0 && c.Tokens+c.StaleGuarded == 0:
		c.Class = ClassHeld
	case isKnown && fenced:
		c.Class, c.Why = ClassToken, known.Why
	case isKnown && noTokens:
		c.Class, c.Why = ClassDocumented, known.Why
	default:
		c.Class = ClassBroken
	}
	if c.Undecided > 0 {
		c.failures = append(c.failures, fmt.Sprintf("no order was found or excluded for %d histories within %v", c.Undecided, judging))
	}
	if len(c.failures) > 0 {
		if c.Class == ClassHeld {
			c.Class = ClassInvalid
		}
		c.Why = c.failures[0]
	}
}
