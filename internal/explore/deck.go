package explore

import (
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/lockbench/lockbench/internal/store"
)

// deck deals the actions of schedules, alone, in pairs, in triples and in two
// triples, such that each single one and each pair comes as early as it can.
type deck struct {
	random   *rand.Rand
	settings []string
	fitting  map[string][]Action // of each setting
	dealt    map[pair]bool
	count    int
}

// pair is two actions, by name and in order; twice the same one is that alone.
type pair [2]string

func pairOf(a, b string) pair {
	if a > b {
		a, b = b, a
	}
	return pair{a, b}
}

func hashOf(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text)) // never fails
	return h.Sum64()
}

// newDeck makes one of the actions that fit in these settings of a backend, or in
// any if there are none.
func newDeck(backend string, settings []string, actions []Action, random *rand.Rand) *deck {
	d := &deck{random: random, fitting: map[string][]Action{}, dealt: map[pair]bool{}}
	if len(settings) == 0 {
		settings = store.Of(backend).SettingNames()
	}
	for _, setting := range settings {
		for _, a := range actions {
			if a.fits(backend, setting, store.Of(backend).Lacks) == "" {
				d.fitting[setting] = append(d.fitting[setting], a)
			}
		}
		if len(d.fitting[setting]) > 0 {
			d.settings = append(d.settings, setting)
		}
	}
	return d
}

// pairs are all that fit in some setting, single actions among them.
func (d *deck) pairs() []pair {
	all := map[pair]bool{}
	for _, actions := range d.fitting {
		for i, a := range actions {
			for _, b := range actions[i:] {
				all[pairOf(a.Name, b.Name)] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b pair) int { return slices.Compare(a[:], b[:]) })
}

// burst is how many actions happen at about the same time at most.
const burst = 3

// deal returns a setting and one to six actions for it.
func (d *deck) deal() (setting string, actions []Action) {
	setting = d.settings[d.random.IntN(len(d.settings))]
	fitting := d.fitting[setting]
	count := 2 * burst
	switch d.count++; {
	case d.count%8 == 1:
		count = 1
	case d.count%16 == 2:
		count = 2
	case d.count%4 == 3:
		count = burst
	}
	for range min(count, len(fitting)) {
		actions = append(actions, d.best(fitting, actions, count == 1))
	}
	for i, a := range actions {
		for _, b := range actions[i:] {
			if a.Name != b.Name || count == 1 {
				d.dealt[pairOf(a.Name, b.Name)] = true
			}
		}
	}
	return setting, actions
}

// best is an action that makes the most pairs with chosen that were not dealt
// before; of several, any.
func (d *deck) best(fitting, chosen []Action, alone bool) Action {
	var best Action
	most, ties := -1, 0
	for _, a := range fitting {
		if slices.ContainsFunc(chosen, func(c Action) bool { return c.Name == a.Name }) {
			continue
		}
		fresh := 0
		for _, c := range chosen {
			if !d.dealt[pairOf(a.Name, c.Name)] {
				fresh += len(fitting)
			}
		}
		if alone && !d.dealt[pair{a.Name, a.Name}] {
			fresh++
		}
		if len(chosen) == 0 && !alone { // whoever has the most that is left
			for _, other := range fitting {
				if !d.dealt[pairOf(a.Name, other.Name)] {
					fresh++
				}
			}
		}
		switch {
		case fresh > most:
			best, most, ties = a, fresh, 1
		case fresh == most:
			if ties++; d.random.IntN(ties) == 0 {
				best = a
			}
		}
	}
	return best
}
