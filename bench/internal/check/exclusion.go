package check

import (
	"cmp"
	"slices"

	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/internal/claim"
)

// grants keeps those earlier holds of a lock with which later holds of the lock must be compared. A
// field is nil if there was no earlier hold.
type grants struct {
	lastEnd  *results.Hold // of the holds so far, the hold that ended last
	maxToken *results.Hold // of the holds so far, the hold with the highest token
}

// A breach function is called with two holds that together break the rule.
type breach func(rule claim.Rule, first, second results.Hold)

// add judges more holds of the lock: no two may overlap and, if tokens is set, tokens must rise. To
// find overlaps, it compares each hold, in the order of the grants, with the hold that ended last.
func (g *grants) add(holds []results.Hold, tokens bool, report breach) {
	if len(holds) == 0 {
		return
	}
	if tokens {
		g.tokens(holds, report)
	}
	last, ordered := g.lastEnd, inOrder(holds)
	for i := range ordered {
		h := &ordered[i]
		if last != nil && h.GrantedNs < last.Until() && last.GrantedNs < h.Until() {
			report(claim.Overlap, *last, *h)
		}
		if last == nil || h.Until() > last.Until() {
			last = h
		}
	}
	g.lastEnd = new(*last) // a copy, which does not keep all holds in memory
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
			rising(one, nil, report)
			inTurn(one, nil, report)
			first := slices.MinFunc(one, byAsked).AskedNs
			for i := range one {
				one[i].AskedNs = first
			}
		}
		fromStore = append(fromStore, slices.MinFunc(one, byGranted))
		from = to
	}
	rising(of, g.maxToken, report)
	inTurn(fromStore, g.maxToken, report)
	repeats(holds, report)
	best := slices.MaxFunc(holds, func(a, b results.Hold) int { return cmp.Compare(a.Token, b.Token) })
	g.maxToken = higher(g.maxToken, &best)
}

func byToken(a, b results.Hold) int { return cmp.Or(cmp.Compare(a.Token, b.Token), byAsked(a, b)) }

func byAsked(a, b results.Hold) int { return cmp.Compare(a.AskedNs, b.AskedNs) }

// rising checks the token of each hold. The token must be higher than the tokens of all holds that
// were granted before this hold was requested. The parameter highest is the hold with the highest
// token of earlier calls, or nil.
func rising(holds []results.Hold, highest *results.Hold, report breach) {
	answered := inOrder(holds)
	for _, h := range slices.SortedFunc(slices.Values(holds), byAsked) {
		for ; len(answered) > 0 && answered[0].GrantedNs <= h.AskedNs; answered = answered[1:] {
			highest = higher(highest, &answered[0])
		}
		if highest != nil && highest.GrantedNs <= h.AskedNs && h.Token <= highest.Token {
			report(claim.Token, *highest, h)
		}
	}
}

func higher(a, b *results.Hold) *results.Hold {
	if a == nil || b.Token > a.Token {
		return b
	}
	return a
}

// inTurn judges pairs of holds whose requests overlapped in time, which the function rising cannot
// judge. The store keeps a lock for a holder at least until the holder hears of the grant. So if a
// hold was granted after the end of another one, the later hold must have the higher token.
func inTurn(holds []results.Hold, highest *results.Hold, report breach) {
	over := func(h results.Hold) int64 { return max(h.GrantedNs, h.Until()) }
	ended := slices.SortedFunc(slices.Values(holds), func(a, b results.Hold) int { return cmp.Compare(over(a), over(b)) })
	for _, h := range inOrder(holds) {
		for ; len(ended) > 0 && over(ended[0]) < h.GrantedNs; ended = ended[1:] {
			highest = higher(highest, &ended[0])
		}
		valid := h.Until() > h.GrantedNs
		if highest != nil && valid && over(*highest) < h.GrantedNs && concurrent(*highest, h) && h.Token < highest.Token {
			report(claim.Token, *highest, h)
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

// repeats() finds holds with equal tokens whose requests overlapped in time. The function rising
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
