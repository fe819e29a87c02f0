package check

import (
	"fmt"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/results"
)

// resourceKey is one thing that was written to.
type resourceKey struct {
	name    int
	guarded bool
}

// effects counts the stale writes: those sent after another one, with a higher
// token, had come back. Of the bare twin the order is judged by the same
// writes, since their holders write to both. O(n^2) for each lock, whose
// writes of one round are few.
func (c *Cell) effects(r results.Round) {
	things := map[resourceKey][]results.Write{}
	for _, w := range r.Writes {
		key := resourceKey{w.Name, w.Guarded}
		things[key] = append(things[key], w)
		if w.Refused {
			c.Refused++
		}
	}
	for key, of := range things {
		for _, w := range of {
			newer, stale := newest(of, w)
			switch {
			case !stale || w.Refused:
			case key.guarded:
				c.StaleGuarded++
				c.violation(r, claim.Effect, w.Name, fmt.Sprintf("%s accepted token %d of host %d at %s after token %d of host %d at %s",
					w.Resource, w.Token, w.Host, at(w.SentNs), newer.Token, newer.Host, at(newer.DoneNs)))
			default:
				c.StaleBare++
			}
		}
	}
}

// newest finds an accepted write with a higher token that was back before w
// was sent.
func newest(of []results.Write, w results.Write) (results.Write, bool) {
	for _, other := range of {
		if other.Token > w.Token && !other.Refused && other.DoneNs < w.SentNs {
			return other, true
		}
	}
	return results.Write{}, false
}
