package faults

import (
	"fmt"
	"slices"
)

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
