package safety

import (
	"slices"
	"testing"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/fault"
	"github.com/lockbench/lockbench/internal/store"
)

// TestScheduleFollowsSeed: the same seed gives the same faults in the same
// order, and another one another order.
func TestScheduleFollowsSeed(t *testing.T) {
	draw := func(backend string, seed uint64) (names []string) {
		s := newSchedule(backend, seed)
		for range 100 {
			names = append(names, s.next().Name)
		}
		return names
	}
	for _, backend := range store.Names() {
		one := draw(backend, 7)
		if !slices.Equal(one, draw(backend, 7)) {
			t.Errorf("%s: one seed, two schedules", backend)
		}
		if slices.Equal(one, draw(backend, 8)) {
			t.Errorf("%s: two seeds, one schedule", backend)
		}
		turn := Turn(backend, 7)
		if !slices.Equal(turn, one[:len(turn)]) {
			t.Errorf("%s: the first turn is %v of %v", backend, turn, one)
		}
		if seeded(backend, 7, "a").Uint64() == seeded(backend, 7, "b").Uint64() {
			t.Errorf("%s: two sources are one", backend)
		}
	}
}

// TestTurnHasWhatMustBeBorne: every fault once, and none whose double grant is
// documented.
func TestTurnHasWhatMustBeBorne(t *testing.T) {
	for backend, least := range map[string][]string{
		"memory":  {"freeze-plugin", "kill-plugin"},
		"redis":   {"freeze-host", "kill-host", "kill-plugin", "kill-both", "partition-holder", "reset", "latency", "lost-reply", "restart", "read-only"},
		"redlock": {"freeze-host", "partition-minority", "restart", "restart-wiped", "pool-exhausted"},
		"mysql":   {"freeze-host", "black-hole", "restart", "pool-exhausted", "slow-server"},
		"etcd":    {"freeze-host", "partition-minority", "partition-majority", "restart", "read-only"},
	} {
		turn, all := Turn(backend, 1), fault.All()
		for _, name := range least {
			if !slices.Contains(turn, name) {
				t.Errorf("%s never meets %s", backend, name)
			}
		}
		for i, name := range turn {
			f := all[slices.Index(fault.Names(), name)]
			if _, documented := store.Of(backend).Exempt(claim.Overlap, f.Produces); documented || slices.Contains(turn[:i], name) {
				t.Errorf("%s meets %s, which is documented or there twice", backend, name)
			}
		}
	}
}
