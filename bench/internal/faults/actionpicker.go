package faults

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"

	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// actionPicker picks one, two, three or six actions for each schedule. It picks them so that each
// action and each pair of actions occurs as early in the search as possible.
type actionPicker struct {
	random   *rand.Rand
	settings []string            // each setting is listed once for every action that is possible in it
	fitting  map[string][]Action // the actions that are possible, by setting
	picked   map[pair]bool
	count    int
}

// pair has the sorted names of two actions of a schedule, or twice the name of its only action.
type pair [2]string

func pairOf(a, b string) pair {
	if a > b {
		a, b = b, a
	}
	return pair{a, b}
}

func hashOf(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text)) // a write to a hash never fails
	return h.Sum64()
}

// newActionPicker makes a picker for the actions that are possible in the given settings of a
// backend. If settings is empty, it uses all settings of the backend.
func newActionPicker(backend string, settings []string, actions []Action, random *rand.Rand) *actionPicker {
	p := &actionPicker{random: random, fitting: map[string][]Action{}, picked: map[pair]bool{}}
	if len(settings) == 0 {
		settings = kinds.Of(backend).SettingNames()
	}
	for _, setting := range settings {
		for _, a := range actions {
			if a.fits(backend, setting) == "" {
				p.fitting[setting] = append(p.fitting[setting], a)
			}
		}
		p.settings = append(p.settings, slices.Repeat([]string{setting}, len(p.fitting[setting]))...)
	}
	return p
}

// burst is the largest number of actions of a schedule that can happen at about the same time.
const burst = 3

// next returns a setting of the store, and one to six actions that are possible in this setting.
func (p *actionPicker) next() (setting string, actions []Action) {
	setting = p.settings[p.random.IntN(len(p.settings))]
	fitting := p.fitting[setting]
	count := 2 * burst
	switch p.count++; {
	case p.count%8 == 1:
		count = 1
	case p.count%16 == 2:
		count = 2
	case p.count%4 == 3:
		count = burst
	}
	for range min(count, len(fitting)) {
		actions = append(actions, p.best(fitting, actions, count == 1))
	}
	for i, a := range actions {
		for _, b := range actions[i:] {
			if a.Name != b.Name || count == 1 {
				p.picked[pairOf(a.Name, b.Name)] = true
			}
		}
	}
	return setting, actions
}

// best returns an action from the list fitting: the one that makes the most new pairs (pairs not
// picked before), or a random one of several. If alone is set, an action makes a pair with itself.
// Otherwise it makes pairs with all actions in chosen or, if chosen is empty, in fitting.
func (p *actionPicker) best(fitting, chosen []Action, alone bool) Action {
	var best Action
	most, ties := -1, 0
	for _, a := range fitting {
		if slices.ContainsFunc(chosen, func(c Action) bool { return c.Name == a.Name }) {
			continue
		}
		partners := chosen
		switch {
		case alone:
			partners = []Action{a}
		case len(chosen) == 0:
			partners = fitting
		}
		fresh := 0
		for _, b := range partners {
			if !p.picked[pairOf(a.Name, b.Name)] {
				fresh++
			}
		}
		switch {
		case fresh > most:
			best, most, ties = a, fresh, 1
		case fresh == most:
			if ties++; p.random.IntN(ties) == 0 {
				best = a
			}
		}
	}
	return best
}

// Coverage counts the actions that have happened in a search, and the actions that can happen.
type Coverage struct {
	Actions    int      `json:"actions"`
	AllActions int      `json:"of_actions"`
	NotMet     []string `json:"not_met"`
}

func newCoverage(p *actionPicker) *Coverage {
	c := &Coverage{NotMet: []string{}}
	for _, actions := range p.fitting {
		for _, a := range actions {
			c.NotMet = append(c.NotMet, a.Name)
		}
	}
	slices.Sort(c.NotMet)
	c.NotMet = slices.Compact(c.NotMet)
	c.AllActions = len(c.NotMet)
	return c
}

func (c *Coverage) add(h *History) {
	c.NotMet = slices.DeleteFunc(c.NotMet, func(name string) bool {
		return slices.ContainsFunc(h.Marks, func(m Mark) bool { return m.Action == name && m.From > 0 && m.Failed == "" })
	})
	c.Actions = c.AllActions - len(c.NotMet)
}

func (c *Coverage) Line() string { return fmt.Sprintf("%d of %d actions met", c.Actions, c.AllActions) }
