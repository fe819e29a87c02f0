package faults

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Coverage is which actions, which pairs of them and which triggers an
// exploration has met.
type Coverage struct {
	fit      map[pair]bool // what there is; true once it was met
	triggers map[string]int
}

// newCoverage is that of all which fit in some setting.
func newCoverage(d *actionPicker) Coverage {
	c := Coverage{fit: map[pair]bool{}, triggers: map[string]int{}}
	for _, actions := range d.fitting {
		for i, a := range actions {
			for _, b := range actions[i:] {
				c.fit[pairOf(a.Name, b.Name)] = false
			}
		}
	}
	return c
}

// add counts what has happened in a history.
func (c Coverage) add(h *History) {
	for i, a := range h.Marks {
		if a.From == 0 || a.Failed != "" {
			continue
		}
		for _, b := range h.Marks[i:] {
			if p := pairOf(a.Action, b.Action); b.From > 0 && b.Failed == "" {
				if _, known := c.fit[p]; known {
					c.fit[p] = true
				}
			}
		}
		if a.Met {
			c.triggers[a.Action+" at "+string(a.Trigger)]++
		}
	}
}

// Counts are how many single actions and pairs there are, and how many were met.
func (c Coverage) Counts() (single, singles, pairs, allPairs int) {
	for p, met := range c.fit {
		seen, all := &pairs, &allPairs
		if p[0] == p[1] {
			seen, all = &single, &singles
		}
		if *all++; met {
			*seen++
		}
	}
	return single, singles, pairs, allPairs
}

// Line sums it up.
func (c Coverage) Line() string {
	single, singles, pairs, allPairs := c.Counts()
	return fmt.Sprintf("%d of %d actions, %d of %d pairs, %d actions at triggers", single, singles, pairs, allPairs, len(c.triggers))
}

// MarshalJSON implements json.Marshaler.
func (c Coverage) MarshalJSON() ([]byte, error) {
	single, singles, pairs, allPairs := c.Counts()
	return json.Marshal(map[string]any{
		"actions": single, "of_actions": singles, "pairs": pairs, "of_pairs": allPairs, "triggers": c.triggers, "not_met": c.Missing(),
	})
}

// Missing lists the actions that were not met.
func (c Coverage) Missing() []string {
	names := []string{}
	for p, met := range c.fit {
		if p[0] == p[1] && !met {
			names = append(names, p[0])
		}
	}
	slices.Sort(names)
	return names
}
