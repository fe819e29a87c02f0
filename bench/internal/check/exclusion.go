package check

import (
	"cmp"
	"slices"

	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/internal/claim"
)

// grants keeps those earlier holds of a lock with which later holds of the lock must be compared.
type grants struct {
	lastEnd  results.Hold // of the holds so far, the hold that ended last
	maxToken results.Hold // of the holds so far, the hold with the highest token
	any      bool
}

// A breach function is called with two holds that together break the rule.
type breach func(rule claim.Rule, first, second results.Hold)

// add judges more holds of the lock: no two may overlap and, if tokens is set, tokens must rise.
func (g *grants) add(holds []results.Hold, tokens bool, report breach) {
	if len(holds) == 0 {
		return
	}
	if tokens {
		g.tokens(holds, report)
	}
	g.overlaps(holds, report)
	g.any = true
}

// The overlaps method goes through holds in the order of their grants, and compares each hold with
// the earlier hold that ended last.
func (g *grants) overlaps(holds []results.Hold, report breach) {
	last, any := g.lastEnd, g.any
	for _, h := range inOrder(holds) {
		if any && h.GrantedNs < last.Until() && last.GrantedNs < h.Until() {
			report(claim.Overlap, last, h)
		}
		if !any || h.Until() > last.Until() {
			last, any = h, true
		}
	}
	g.lastEnd = last
}

func inOrder(holds []results.Hold) []results.Hold {
	return slices.SortedFunc(slices.Values(holds), byGranted)
}

func byGranted(a, b results.Hold) int { return cmp.Compare(a.GrantedNs, b.GrantedNs) }

// tokens() checks that tokens rise from one grant of the store to the next. It checks hand-overs
// separately. In a hand-over, a host passes its lease from one of its callers to another.
//
// In comparisons with other leases, a hand-over counts as requested when the host first requested
// the lease. So it is no violation if a host hands over a lease that the store has lost, even after
// the store has granted a later lease. A resource refuses the lower token of the lost lease.
func (g *grants) tokens(holds []results.Hold, report breach) {
	of := slices.SortedFunc(slices.Values(holds), byToken)
	var fromStore []results.Hold // the first hold of each lease
	for from := 0; from < len(of); {
		to := from + 1
		for to < len(of) && core.GrantNumber(of[to].Token) == core.GrantNumber(of[from].Token) {
			to++
		}
		one := of[from:to]
		if len(one) > 1 {
			new(grants).rising(one, report)
			inTurn(one, results.Hold{}, false, report)
			first := slices.MinFunc(one, byAsked).AskedNs
			for i := range one {
				one[i].AskedNs = first
			}
		}
		fromStore = append(fromStore, slices.MinFunc(one, byGranted))
		from = to
	}
	g.rising(of, report)
	inTurn(fromStore, g.maxToken, g.any, report)
	repeats(holds, report)

	best := slices.MaxFunc(holds, func(a, b results.Hold) int { return cmp.Compare(a.Token, b.Token) })
	if !g.any || best.Token > g.maxToken.Token {
		g.maxToken = best
	}
}

func byToken(a, b results.Hold) int { return cmp.Or(cmp.Compare(a.Token, b.Token), byAsked(a, b)) }

func byAsked(a, b results.Hold) int { return cmp.Compare(a.AskedNs, b.AskedNs) }

// rising checks the token of each hold. The token must be higher than the tokens of all holds that
// were granted before this hold was requested.
func (g *grants) rising(holds []results.Hold, report breach) {
	answered := inOrder(holds)
	highest, any := g.maxToken, g.any
	next := 0
	for _, h := range slices.SortedFunc(slices.Values(holds), byAsked) {
		for next < len(answered) && answered[next].GrantedNs <= h.AskedNs {
			if !any || answered[next].Token > highest.Token {
				highest, any = answered[next], true
			}
			next++
		}
		if any && highest.GrantedNs <= h.AskedNs && h.Token <= highest.Token {
			report(claim.Token, highest, h)
		}
	}
}

// inTurn judges pairs of holds whose requests overlapped in time, which the rising method cannot
// judge. The store keeps a lock for a holder at least until the holder hears of the grant. So if a
// hold was granted after the end of another one, the later hold must have the higher token. If the
// parameter any is set, the parameter before is the hold with the highest token of earlier calls.
func inTurn(holds []results.Hold, before results.Hold, any bool, report breach) {
	over := func(h results.Hold) int64 { return max(h.GrantedNs, h.Until()) }
	ended := slices.SortedFunc(slices.Values(holds), func(a, b results.Hold) int { return cmp.Compare(over(a), over(b)) })
	highest, next := before, 0
	for _, h := range inOrder(holds) {
		for ; next < len(ended) && over(ended[next]) < h.GrantedNs; next++ {
			if !any || ended[next].Token > highest.Token {
				highest, any = ended[next], true
			}
		}
		valid := h.Until() > h.GrantedNs
		if any && valid && over(highest) < h.GrantedNs && concurrent(highest, h) && h.Token < highest.Token {
			report(claim.Token, highest, h)
		}
	}
}

func concurrent(first, second results.Hold) bool { return second.AskedNs < first.GrantedNs }

// forgotten reports whether two holds with falling tokens are possible in a store that forgets
// grants. The store may have made the second grant, forgotten it, and only then made the first.
func forgotten(rule claim.Rule, first, second results.Hold) bool {
	other := core.GrantNumber(first.Token) != core.GrantNumber(second.Token)
	return rule == claim.Token && other && first.Token > second.Token && concurrent(first, second)
}

// repeats() finds holds with equal tokens whose requests overlapped in time. The rising method
// finds all other equal tokens.
func repeats(holds []results.Hold, report breach) {
	ordered := slices.SortedFunc(slices.Values(holds), byToken)
	for i := 1; i < len(ordered); i++ {
		a, b := ordered[i-1], ordered[i]
		if a.Token == b.Token && b.AskedNs < a.GrantedNs {
			report(claim.Token, a, b)
		}
	}
}
