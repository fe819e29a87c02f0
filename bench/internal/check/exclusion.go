package check

import (
	"cmp"
	"slices"

	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/internal/claim"
)

// grants is the state with which later holds of a name are compared.
type grants struct {
	lastEnd  results.Hold // of the holds so far, the one that ended last
	maxToken results.Hold // of the holds so far, the one with the highest token
	any      bool
}

// breach is called with the two holds that break a rule.
type breach func(rule claim.Rule, first, second results.Hold)

// add judges holds of one name. No two may overlap, and tokens must rise, if there
// are tokens.
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

// overlaps sweeps over holds in the order of their grants, and compares each with the
// hold so far that lasts longest.
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

// inOrder returns holds in the order of their grants.
func inOrder(holds []results.Hold) []results.Hold {
	return slices.SortedFunc(slices.Values(holds), func(a, b results.Hold) int { return cmp.Compare(a.GrantedNs, b.GrantedNs) })
}

// tokens judges that tokens rise, over the store's grants and over the hand-overs of
// each grant inside its host.
//
// A hand-over is as old as its grant. A host that does not know yet that the store
// has lost its lease may hand it on, while another host has had a later grant and may
// even have ended it. A resource refuses the lower token, as it should.
func (g *grants) tokens(holds []results.Hold, report breach) {
	of := slices.SortedFunc(slices.Values(holds), byToken)
	for from := 0; from < len(of); {
		to := from + 1
		for to < len(of) && core.GrantNumber(of[to].Token) == core.GrantNumber(of[from].Token) {
			to++
		}
		one := of[from:to]
		if len(one) > 1 {
			new(grants).rising(one, report)
			first := slices.MinFunc(one, byAsked).AskedNs
			for i := range one {
				one[i].AskedNs = first
			}
		}
		from = to
	}
	g.rising(of, report)
	repeats(holds, report)

	best := slices.MaxFunc(holds, func(a, b results.Hold) int { return cmp.Compare(a.Token, b.Token) })
	if !g.any || best.Token > g.maxToken.Token {
		g.maxToken = best
	}
}

// byToken orders holds by token, and those with the same token by time.
func byToken(a, b results.Hold) int { return cmp.Or(cmp.Compare(a.Token, b.Token), byAsked(a, b)) }

func byAsked(a, b results.Hold) int { return cmp.Compare(a.AskedNs, b.AskedNs) }

// rising compares each hold, in the order of asking, with the highest token among
// those that had been granted by then. Holds whose times say nothing about their
// order must still differ.
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

// repeats finds equal tokens of holds that were asked for at the same time. For holds
// one after the other the order already finds them.
func repeats(holds []results.Hold, report breach) {
	ordered := slices.SortedFunc(slices.Values(holds), byToken)
	for i := 1; i < len(ordered); i++ {
		a, b := ordered[i-1], ordered[i]
		if a.Token == b.Token && b.AskedNs < a.GrantedNs {
			report(claim.Token, a, b)
		}
	}
}
