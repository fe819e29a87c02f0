package redlock

import (
	"testing"
	"testing/synctest"
	"time"
)

// A lock counts as contended only for some time after the host has seen a waiter.
func TestContentionIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c contention
		c.init()
		c.note("n")
		if !c.outOfTurn("n", "o") || c.outOfTurn("other", "o") {
			t.Error("it does not know for which names somebody waits")
		}
		c.turns.Put("o", struct{}{})
		if c.outOfTurn("n", "o") || !c.outOfTurn("n", "o") {
			t.Error("a turn is not good for one attempt")
		}
		time.Sleep(contendedFor)
		if !c.outOfTurn("n", "o") {
			t.Error("a name is forgotten too soon")
		}
		time.Sleep(2 * contendedFor)
		if c.outOfTurn("n", "o") || c.known.Load() {
			t.Error("a name is never forgotten")
		}
	})
}
