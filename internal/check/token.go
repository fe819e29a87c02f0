package check

import (
	"cmp"
	"slices"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/record"
)

// checkTokens compares each grant of one name, in the order of asking, with
// the highest token among those that had come back by then. Grants whose
// times say nothing about their order must still differ.
func checkTokens(st *nameState, grants []record.Attempt, report func(claim.Rule, record.Attempt, record.Attempt)) {
	asked := slices.Clone(grants)
	slices.SortFunc(asked, func(a, b record.Attempt) int { return cmp.Compare(a.Asked, b.Asked) })
	answered := slices.Clone(grants)
	slices.SortFunc(answered, func(a, b record.Attempt) int { return cmp.Compare(a.Answered, b.Answered) })

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
	checkRepeats(grants, report)

	best := slices.MaxFunc(grants, func(a, b record.Attempt) int { return cmp.Compare(a.Token, b.Token) })
	if !st.any || best.Token > st.maxToken.Token {
		st.maxToken = best
	}
}

// checkRepeats finds equal tokens of grants that were in flight together;
// those one after the other are found by the order already.
func checkRepeats(grants []record.Attempt, report func(claim.Rule, record.Attempt, record.Attempt)) {
	byToken := slices.Clone(grants)
	slices.SortFunc(byToken, func(a, b record.Attempt) int {
		return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.Asked, b.Asked))
	})
	for i := 1; i < len(byToken); i++ {
		a, b := byToken[i-1], byToken[i]
		if a.Token == b.Token && b.Asked < a.Answered {
			report(claim.Token, a, b)
		}
	}
}
