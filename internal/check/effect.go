package check

import (
	"github.com/lockbench/lockbench/internal/record"
)

// effect is what became of the writes of one round.
type effect struct {
	staleGuarded  int          // that a guard let through after a higher token
	staleBare     int          // the same, where there is no guard
	refused       int          // by a guard
	first, second record.Write // of the last of staleGuarded
}

// resourceKey is one thing that was written to.
type resourceKey struct {
	name    int
	guarded bool
}

// effects counts the stale writes: those sent after another one, with a higher
// token, had come back. Of the bare twin the order is judged by the same
// writes, since their holders write to both. O(n^2) for each lock, whose
// writes of one round are few.
func effects(writes []record.Write) effect {
	var e effect
	things := map[resourceKey][]record.Write{}
	for _, w := range writes {
		key := resourceKey{w.Name, w.Guarded}
		things[key] = append(things[key], w)
		if w.Refused {
			e.refused++
		}
	}
	for key, of := range things {
		for _, w := range of {
			newer, stale := newest(of, w)
			switch {
			case !stale || w.Refused:
			case key.guarded:
				e.staleGuarded++
				e.first, e.second = newer, w
			default:
				e.staleBare++
			}
		}
	}
	return e
}

// newest finds an accepted write with a higher token that was back before w
// was sent.
func newest(of []record.Write, w record.Write) (record.Write, bool) {
	for _, other := range of {
		if other.Token > w.Token && !other.Refused && other.DoneNs < w.SentNs {
			return other, true
		}
	}
	return record.Write{}, false
}
