package check

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/results"
)

// table is one round of the table of faults, and the cell that sums it up.
type table struct {
	*Cell
	round results.Round
	ttl   time.Duration
}

// violation keeps a violation with its details, of each rule a few.
func (t *table) violation(rule claim.Rule, name int, format string, args ...any) {
	const keepEach = 3
	if t.kept == nil {
		t.kept = map[claim.Rule]int{}
	}
	if t.kept[rule]++; t.kept[rule] <= keepEach {
		t.Violations = append(t.Violations,
			fmt.Sprintf("%s: %s under %s, round %d, lock %d: %s", rule, t.Backend, t.Fault, t.round.Round, name, fmt.Sprintf(format, args...)))
	}
}

// stood are the times in which a host did not run.
func (t *table) stood(host int) []Span {
	var all []Span
	for _, h := range t.round.Halts {
		if h.Host == host && h.To > 0 {
			all = append(all, Span{h.From, h.To})
		} else if h.Host == host {
			all = append(all, Span{h.From, math.MaxInt64})
		}
	}
	return all
}

// died is when a host was killed; 0 if it was not.
func (t *table) died(host int) int64 {
	for _, h := range t.round.Halts {
		if h.Host == host && h.Why == results.HaltKilled {
			return h.From
		}
	}
	return 0
}

// name judges the holds of one lock, which are in the order of their grants.
func (t *table) name(name int, holds []results.Hold) {
	if len(holds) == 0 {
		return
	}
	new(grants).add(holds, t.round.Fencing != "none", func(rule claim.Rule, first, second results.Hold) {
		count := &t.Tokens
		if rule == claim.Overlap {
			count = &t.Overlaps
		}
		*count++
		t.violation(rule, name, "%s", both(rule, first, second, func(n int) string { return "host " + HostName(n) }))
	})
	switch ok, decided := linear(holds, t.ttl, t.died, 0); {
	case !decided:
		t.Undecided++
	case !ok:
		t.Linear++
		t.violation(claim.Linear, name, "%s", suspects(holds))
		if ok, _ := linear(holds, t.ttl, t.died, t.round.InjectedNs); !ok {
			t.Beyond++
		}
	}
	for i, h := range holds {
		t.lag(h)
		t.keeps(h)
		t.prompt(holds, i)
		if i > 0 {
			t.handover(holds[i-1], h)
		}
	}
	t.windows(holds)
}

// suspects names the first two grants that follow each other without an end
// between them that is known; of a history that is wrong in another way, the first
// and the last.
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

// handover judges a grant and the one that follows it.
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

// lag measures how long after the end of a freeze a holder learned that its lease,
// which had run out, was lost.
func (t *table) lag(held results.Hold) {
	for _, h := range t.round.Halts {
		if h.Host == held.Host && h.Why == results.HaltFrozen && h.To > 0 && held.GrantedNs < h.From && held.DoneNs > h.From {
			t.Lag = max(t.Lag, held.DoneNs-h.To)
		}
	}
}

// windows measures how long no client could have the lock.
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

// longTTL is that of leases of which none may be lost for want of time.
const longTTL = 10 * time.Second

// keeps judges a lease under a fault to which none should be lost. One that was
// granted in an outage is not promised to outlast it.
func (t *table) keeps(h results.Hold) {
	inOutage := h.GrantedNs > t.round.InjectedNs && h.GrantedNs < t.round.BackNs
	if !t.round.Keeps || inOutage || h.DoneNs == 0 || h.ReleaseNs != 0 {
		return
	}
	t.FalseLosses++
	if t.ttl >= longTTL {
		t.Unserved++
		t.violation(claim.Survives, h.Name, "host %s lost its lease with token %d at %s: %s", HostName(h.Host), h.Token, at(h.DoneNs), h.Cause)
	}
}

// prompt judges one of the grants of a lock, for which a caller waits from the
// injection on: once the store is back it gets what is free.
func (t *table) prompt(holds []results.Hold, i int) {
	h, free := holds[i], t.round.BackNs
	if free == 0 || h.GrantedNs < t.round.InjectedNs {
		return
	}
	if i > 0 {
		switch before := holds[i-1]; {
		case before.ReleasedNs > 0:
			free = max(free, before.ReleasedNs)
		case before.ReleaseNs > 0: // it is tried until it is answered
			free = max(free, before.ReleaseNs) + int64(claim.ReleaseGrace)
		default:
			return // it is not known when it ended
		}
	}
	waited := time.Duration(h.GrantedNs-free) - overlap(t.stood(h.Host), Span{free, h.GrantedNs})
	if waited > claim.Of(claim.Woken).Within(claim.Setting{Terms: claim.TermsOf(t.Backend), TTL: t.ttl}) {
		t.Unserved++
		t.violation(claim.Woken, h.Name, "host %s was granted token %d at %s, and the lock was free and the store back at %s",
			HostName(h.Host), h.Token, at(h.GrantedNs), at(free))
	}
}

// effects counts the stale writes: those sent after another one to the same thing,
// with a higher token, had come back. O(n^2) for each round, whose writes are few.
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
			t.violation(claim.Effect, w.Name, "%s accepted token %d of host %s at %s after token %d of host %s at %s",
				w.Resource, w.Token, HostName(w.Host), at(w.SentNs), newer.Token, HostName(newer.Host), at(newer.DoneNs))
		default:
			t.StaleBare++
		}
	}
}
