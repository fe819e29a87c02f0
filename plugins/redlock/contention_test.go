package redlock

import (
	"fmt"
	"testing"
)

// What is noted is forgotten, without a look at all of it for each new name.
func TestContentionIsSweptSeldom(t *testing.T) {
	var c contention
	sweeps, before := 0, 0
	for i := range 100_000 {
		c.note(fmt.Sprint("n", i))
		if c.names.sweepAt != before {
			sweeps, before = sweeps+1, c.names.sweepAt
		}
	}
	if sweeps > 10 {
		t.Errorf("%d sweeps for 100,000 names", sweeps)
	}
	if !c.out("n99999", "o") || c.out("other", "o") {
		t.Error("it does not know for which names somebody waits")
	}
	for name := range c.names.until {
		c.names.until[name] = c.names.until[name].Add(-2 * contendedFor)
	}
	for i := range c.names.sweepAt {
		c.note(fmt.Sprint("m", i))
	}
	if n := len(c.names.until); n > 2*c.names.sweepAt {
		t.Errorf("%d names are kept", n)
	}
	if c.out("n99999", "o") {
		t.Error("a name is never forgotten")
	}
}
