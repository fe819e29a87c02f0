package faults

import (
	"fmt"
	"slices"
)

// Coverage is which actions, which pairs of them and which triggers a search has
// met, of those that there are.
type Coverage struct {
	Actions    int            `json:"actions"`
	AllActions int            `json:"of_actions"`
	Pairs      int            `json:"pairs"`
	AllPairs   int            `json:"of_pairs"`
	Triggers   map[string]int `json:"triggers"` // how often
	NotMet     []string       `json:"not_met"`  // actions

	met map[pair]bool // false for one that was not yet
}

// newCoverage is that of all which fit in some setting.
func newCoverage(p *actionPicker) *Coverage {
	c := &Coverage{Triggers: map[string]int{}, met: map[pair]bool{}}
	for _, actions := range p.fitting {
		for i, a := range actions {
			for _, b := range actions[i:] {
				c.met[pairOf(a.Name, b.Name)] = false
			}
		}
	}
	c.count()
	return c
}

// add counts what has happened in a history.
func (c *Coverage) add(h *History) {
	happened := func(m Mark) bool { return m.From > 0 && m.Failed == "" }
	for i, a := range h.Marks {
		if !happened(a) {
			continue
		}
		for _, b := range h.Marks[i:] {
			if _, fits := c.met[pairOf(a.Action, b.Action)]; fits && happened(b) {
				c.met[pairOf(a.Action, b.Action)] = true
			}
		}
		if a.Met {
			c.Triggers[a.Action+" at "+string(a.Trigger)]++
		}
	}
	c.count()
}

func (c *Coverage) count() {
	c.Actions, c.AllActions, c.Pairs, c.AllPairs, c.NotMet = 0, 0, 0, 0, []string{}
	for p, met := range c.met {
		n, all := &c.Pairs, &c.AllPairs
		if p[0] == p[1] {
			n, all = &c.Actions, &c.AllActions
		}
		if *all++; met {
			*n++
		} else if p[0] == p[1] {
			c.NotMet = append(c.NotMet, p[0])
		}
	}
	slices.Sort(c.NotMet)
}

// Line sums it up.
func (c *Coverage) Line() string {
	return fmt.Sprintf("%d of %d actions, %d of %d pairs, %d actions at triggers", c.Actions, c.AllActions, c.Pairs, c.AllPairs, len(c.Triggers))
}
