package check

import (
	"cmp"
	"slices"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/results"
)

// checkTokens judges that tokens rise, over the grants of the store and over the
// hand-overs of each of them inside its host.
//
// A hand-over is as old as its grant: a host that does not know yet that the
// store has lost its lease hands it on, while another one has had a later grant
// and may be through with it. A resource refuses the lower token, as it should.
func checkTokens(st *nameState, grants []results.Attempt, report func(claim.Rule, results.Attempt, results.Attempt)) {
	of := slices.Clone(grants)
	slices.SortFunc(of, byToken)
	for from := 0; from < len(of); {
		to := from + 1
		for to < len(of) && core.GrantNumber(of[to].Token) == core.GrantNumber(of[from].Token) {
			to++
		}
		one := of[from:to]
		if len(one) > 1 {
			checkRising(&nameState{}, one, report)
			first := slices.MinFunc(one, func(a, b results.Attempt) int { return cmp.Compare(a.Asked, b.Asked) }).Asked
			for i := range one {
				one[i].Asked = first
			}
		}
		from = to
	}
	checkRising(st, of, report)
	checkRepeats(grants, report)

	best := slices.MaxFunc(grants, func(a, b results.Attempt) int { return cmp.Compare(a.Token, b.Token) })
	if !st.any || best.Token > st.maxToken.Token {
		st.maxToken = best
	}
}

// byToken orders grants by token, those with the same one by their time.
func byToken(a, b results.Attempt) int {
	return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.Asked, b.Asked))
}

// checkRising compares each grant of one name, in the order of asking, with
// the highest token among those that had come back by then. Grants whose
// times say nothing about their order must still differ.
func checkRising(st *nameState, grants []results.Attempt, report func(claim.Rule, results.Attempt, results.Attempt)) {
	asked := slices.Clone(grants)
	slices.SortFunc(asked, func(a, b results.Attempt) int { return cmp.Compare(a.Asked, b.Asked) })
	answered := slices.Clone(grants)
	slices.SortFunc(answered, func(a, b results.Attempt) int { return cmp.Compare(a.Answered, b.Answered) })

	highest, any := st.maxToken, st.any
	next := 0
	for _, g := range asked {
		for next < len(answered) && answered[next].Answered <= g.Asked {
			if !any || answered[next].Token > highest.Token {
				highest, any = answered[next], true
			}
			next++
		}
		if any && highest.Answered <= g.Asked && g.Token <= highest.Token {
			report(claim.Token, highest, g)
		}
	}
}

// checkRepeats finds equal tokens of grants that were in flight together;
// those one after the other are found by the order already.
func checkRepeats(grants []results.Attempt, report func(claim.Rule, results.Attempt, results.Attempt)) {
	ordered := slices.Clone(grants)
	slices.SortFunc(ordered, byToken)
	for i := 1; i < len(ordered); i++ {
		a, b := ordered[i-1], ordered[i]
		if a.Token == b.Token && b.Asked < a.Answered {
			report(claim.Token, a, b)
		}
	}
}
