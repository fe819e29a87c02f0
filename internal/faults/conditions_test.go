package faults

import (
	"testing"
)

// TestConditionsAreKnown: what a fault makes is something that a claim may name.
func TestConditionsAreKnown(t *testing.T) {
	for _, f := range All() {
		for _, c := range f.Produces {
			if c.Says() == "" {
				t.Errorf("%s makes %q, which no claim knows", f.Name, c)
			}
		}
	}
}
