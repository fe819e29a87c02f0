package check

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/claim"
)

// Class is the verdict on one backend under one fault.
type Class string

// Only ClassBroken is a violation.
const (
	ClassHeld       Class = "held"
	ClassToken      Class = "held by token only"
	ClassDocumented Class = "broken as documented"
	ClassBroken     Class = "broken"
	ClassNotRun     Class = "not run"
	ClassInvalid    Class = "invalid" // nothing was granted, or no claim was broken but a round or a check failed
)

// Cell has the findings about one backend under one fault, from all rounds (each round plays the
// fault once). Times are in nanoseconds.
type Cell struct {
	Backend string `json:"backend"`
	Fault   string `json:"fault"`
	Class   Class  `json:"verdict"`
	// Why gives the reason for the class: what was missing to play the fault, why playing it
	// failed, or which documented exception applies.
	Why     string `json:"why,omitempty"`
	Control bool   `json:"control,omitempty"`
	Rounds  int    `json:"rounds"`
	Hits    int    `json:"locks_hit"`
	Grants  int    `json:"grants"`
	// These four fields each count the violations of one rule.
	Overlaps int `json:"overlaps"`
	Tokens   int `json:"tokens_not_rising"`
	Linear   int `json:"not_linearizable"`
	Signals  int `json:"lost_signal_late"`
	// Beyond is the number of histories counted in Linear that are wrong even for a store that forgot
	// its grants when the fault was injected. No documented exception allows such a history.
	Beyond int `json:"beyond_forgetting,omitempty"`
	// Undecided counts the histories of locks for which the check for Linear exceeded its time limit.
	Undecided int `json:"undecided,omitempty"`
	// Belief is the longest time during which two holders believed that they held the same lock.
	Belief int64 `json:"belief_overlap_max_ns"`
	// Margin is the shortest time from the moment at which a holder learned of its loss to the next
	// grant of the lock. Margins is the number of times that this time was measured.
	Margin  int64 `json:"lost_signal_margin_min_ns"`
	Margins int   `json:"lost_signal_margins"`
	// StaleGuarded and StaleBare count stale writes that a resource accepted, with and without the
	// guard (a check of the token). Refused counts late writes that the guard refused.
	StaleGuarded int `json:"stale_writes_guarded"`
	StaleBare    int `json:"stale_writes_unguarded"`
	Refused      int `json:"stale_writes_refused"`
	// FalseLosses counts leases that were lost in a fault that should cost no lease.
	FalseLosses int `json:"false_losses"`
	// Unserved is the sum of two counts: the FalseLosses that break a claim, and the grants of a
	// free lock that came later than a claim allows.
	Unserved int `json:"unserved,omitempty"`
	// Unavailable is the longest time from the injection to the next grant of a lock whose holder had
	// not released it. Recovery is the longest time from the fault's end to such a grant.
	Unavailable int64 `json:"unavailable_max_ns,omitempty"`
	Recovery    int64 `json:"recovery_max_ns,omitempty"`
	// Violations describes up to three violations of each rule, with the holders and times.
	Violations []string `json:"violations,omitempty"`

	kind     results.Kind
	fencing  string
	terms    claim.Terms
	made     []claim.Condition
	failures []string
	kept     map[claim.Rule]int
}

// Unsafe reports whether the backend broke a claim. It is false for controls and baselines.
func (c Cell) Unsafe() bool {
	return c.Class == ClassBroken && !c.Control && c.kind == results.KindPlugin
}

// Invalid returns a line for each cell (backend and fault) without a usable result.
func (v Verdict) Invalid() []string {
	var out []string
	for _, c := range v.Cells {
		if c.Class == ClassInvalid {
			out = append(out, fmt.Sprintf("%s under %s: %s", c.Backend, c.Fault, cmp.Or(c.Why, "nothing was granted")))
		}
	}
	return out
}

// Cells judges the rounds of a run, each of which played one fault on one backend. It returns one
// Cell for each pair of backend and fault, in the order of their first rounds.
func Cells(rounds []results.Round) []Cell {
	var cells []Cell
	for _, r := range rounds {
		i := slices.IndexFunc(cells, func(c Cell) bool { return c.Backend == r.Backend && c.Fault == r.Fault })
		if i < 0 {
			i = len(cells)
			cells = append(cells, Cell{
				Backend: r.Backend, Fault: r.Fault, Control: r.Control, kind: r.Kind, fencing: r.Fencing,
				terms: claim.TermsOf(r.Backend, r.Claims), made: r.Conditions, kept: map[claim.Rule]int{},
			})
		}
		cells[i].add(r)
	}
	for i := range cells {
		cells[i].conclude()
	}
	return cells
}

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
	t := &table{c, r, claim.Setting{Terms: c.terms, FirstSpan: time.Duration(r.FirstSpanNs), TTL: time.Duration(r.TTLms) * time.Millisecond}}
	holds := byName(r.Holds)
	for name := range r.Names {
		t.name(name, holds[name])
	}
	t.effects()
}

// conclude sets the class of the cell, and the reason for it, from the counts.
func (c *Cell) conclude() {
	if c.Class == ClassNotRun && c.Rounds == 0 {
		return
	}
	known, isKnown := c.terms.Exempt(claim.Overlap, c.made)
	_, noTokens := c.terms.Exempt(claim.Token, c.made)
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

// table judges one round (one fault played on one backend), and adds the results to a Cell.
type table struct {
	*Cell
	round   results.Round
	setting claim.Setting
}

func (t *table) violation(rule claim.Rule, name int, format string, args ...any) {
	const keepEach = 3
	if t.kept[rule]++; t.kept[rule] <= keepEach {
		t.Violations = append(t.Violations,
			fmt.Sprintf("%s: %s under %s, round %d, lock %d: %s", rule, t.Backend, t.Fault, t.round.Round, name, fmt.Sprintf(format, args...)))
	}
}

func (t *table) stood(host int) []Span {
	var all []Span
	for _, h := range t.round.Halts {
		if h.Host == host {
			all = append(all, Span{h.From, cmp.Or(h.To, math.MaxInt64)})
		}
	}
	return all
}

func (t *table) died(host int) int64 {
	for _, h := range t.round.Halts {
		if h.Host == host && h.Why == results.HaltKilled {
			return h.From
		}
	}
	return 0
}

// The name method judges the holds of one lock, which are in the order of their grants.
func (t *table) name(name int, holds []results.Hold) {
	if len(holds) == 0 {
		return
	}
	_, mayForget := t.terms.Exempt(claim.Overlap, t.made)
	new(grants).add(holds, t.round.Fencing != "none", func(rule claim.Rule, first, second results.Hold) {
		if mayForget && forgotten(rule, first, second) {
			return
		}
		count := &t.Tokens
		if rule == claim.Overlap {
			count = &t.Overlaps
		}
		*count++
		t.violation(rule, name, "%s", both(rule, first, second, func(n int) string { return "host " + HostName(n) }))
	})
	switch ok, decided := linear(holds, t.setting, t.died, 0); {
	case !decided:
		t.Undecided++
	case !ok:
		t.Linear++
		t.violation(claim.Linear, name, "%s", suspects(holds))
		if ok, _ := linear(holds, t.setting, t.died, t.round.InjectedNs); !ok {
			t.Beyond++
		}
	}
	for i, h := range holds {
		t.keeps(h)
		t.prompt(holds, i)
		if i > 0 {
			t.handover(holds[i-1], h)
		}
	}
	t.windows(holds)
}

// suspects describes the first grant that may not have ended before the next one, and that next
// grant. If there is no such grant, it describes the first grant and the last.
func suspects(holds []results.Hold) string {
	first, next := holds[0], holds[len(holds)-1]
	for i := 1; i < len(holds); i++ {
		a, b := holds[i-1], holds[i]
		if a.ReleasedNs == 0 && (a.DoneNs == 0 || a.DoneNs > b.GrantedNs) {
			first, next = a, b
			break
		}
	}
	return fmt.Sprintf("no order explains host %s with token %d, granted at %s, and host %s with token %d, granted at %s",
		HostName(first.Host), first.Token, at(first.GrantedNs), HostName(next.Host), next.Token, at(next.GrantedNs))
}

// handover judges whether the first holder learned of its loss before the next holder was granted
// the lock.
func (t *table) handover(first, next results.Hold) {
	if first.ReleaseNs == 0 || first.ReleaseNs > next.GrantedNs {
		t.Belief = max(t.Belief, first.ValidNs-next.GrantedNs)
	}
	warning, known := margin(first, next, t.stood(first.Host), rounding)
	if !known {
		return
	}
	if t.Margins == 0 || warning < t.Margin {
		t.Margin = warning
	}
	if t.Margins++; warning < 0 {
		t.Signals++
		t.violation(claim.Signal, next.Name, "host %s with token %d learned of the loss at %s, host %s was granted token %d at %s",
			HostName(first.Host), first.Token, at(first.DoneNs), HostName(next.Host), next.Token, at(next.GrantedNs))
	}
}

// windows measures how long after the fault's start, and after its end, the lock was granted again.
func (t *table) windows(holds []results.Hold) {
	injected, healed := t.round.InjectedNs, t.round.HealedNs
	lost := func(h results.Hold) bool { return h.GrantedNs < injected && h.ReleaseNs == 0 }
	next := slices.IndexFunc(holds, func(h results.Hold) bool { return h.GrantedNs >= injected })
	if injected == 0 || next < 0 || !slices.ContainsFunc(holds, lost) {
		return
	}
	granted := holds[next].GrantedNs
	t.Unavailable = max(t.Unavailable, granted-injected)
	if healed > 0 {
		t.Recovery = max(t.Recovery, granted-healed)
	}
}

// longTTL is the shortest TTL at which a lost lease breaks a claim.
const longTTL = 10 * time.Second

// The keeps method judges whether a lease survived a fault that should cost no lease. It ignores
// leases that were granted during the outage, and [brief] leases.
func (t *table) keeps(h results.Hold) {
	inOutage := h.GrantedNs > t.round.InjectedNs && h.GrantedNs < t.round.BackNs
	short := h.Cause != "revoked" && brief(h, t.setting)
	if !t.round.Keeps || inOutage || short || h.DoneNs == 0 || h.ReleaseNs != 0 {
		return
	}
	t.FalseLosses++
	if t.setting.TTL >= longTTL {
		t.Unserved++
		t.violation(claim.Survives, h.Name, "host %s lost its lease with token %d at %s: %s", HostName(h.Host), h.Token, at(h.DoneNs), h.Cause)
	}
}

// prompt judges the grant of hold number i. Once the store serves again and the lock is free, a
// waiting caller must get the lock within the time limit of the claim Woken.
func (t *table) prompt(holds []results.Hold, i int) {
	h, free := holds[i], t.round.BackNs
	if free == 0 || h.GrantedNs < t.round.InjectedNs {
		return
	}
	if i > 0 {
		switch before := holds[i-1]; {
		case before.ReleasedNs > 0:
			free = max(free, before.ReleasedNs)
		case before.ReleaseNs > 0: // the host repeats the release until the store answers
			free = max(free, before.ReleaseNs) + int64(claim.ReleaseGrace)
		default:
			return // the end of the hold is not known
		}
	}
	s := t.setting
	for _, f := range t.round.Halts {
		if f.Why == results.HaltFrozen && f.Host != h.Host && f.From < h.GrantedNs {
			s.Absent = 1 // each host has only one waiter for a lock
		}
	}
	waited := time.Duration(h.GrantedNs-free) - overlap(t.stood(h.Host), Span{free, h.GrantedNs})
	if waited > claim.Woken.Within(s) {
		t.Unserved++
		t.violation(claim.Woken, h.Name, "host %s was granted token %d at %s, and the lock was free and the store back at %s",
			HostName(h.Host), h.Token, at(h.GrantedNs), at(free))
	}
}

// effects() counts stale writes. A write is stale if it was sent after a write with a higher token
// to the same resource had returned. The method takes O(n^2) time, but a round has few writes.
func (t *table) effects() {
	for _, w := range t.round.Writes {
		if w.Refused {
			t.Refused++
			continue
		}
		i := slices.IndexFunc(t.round.Writes, func(o results.Write) bool {
			return o.Name == w.Name && o.Guarded == w.Guarded && o.Token > w.Token && !o.Refused && o.DoneNs < w.SentNs
		})
		switch {
		case i < 0:
		case w.Guarded:
			newer := t.round.Writes[i]
			t.StaleGuarded++
			t.violation(claim.Effect, w.Name, "the file accepted token %d of host %s at %s after token %d of host %s at %s",
				w.Token, HostName(w.Host), at(w.SentNs), newer.Token, HostName(newer.Host), at(newer.DoneNs))
		default:
			t.StaleBare++
		}
	}
}
