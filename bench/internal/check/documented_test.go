package check_test

import (
	"testing"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/bench/internal/faults"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// documented lists, for each backend, the faults under which its documentation allows two holders
// at once. Under all other faults, the backend promises at most one holder.
var documented = map[string]map[string]check.Class{
	"redis": {
		"restart-wiped": check.ClassToken, "failover": check.ClassToken, "failover-wait": check.ClassToken, "clock-forward": check.ClassToken,
		"failover-planned": check.ClassToken, "evict-at-once": check.ClassToken,
	},
	"redlock": {
		"restart-wiped-open": check.ClassToken, "clock-forward": check.ClassToken,
		"evict-at-once": check.ClassToken,
	},
	"mysql":    {"restart-wiped": check.ClassToken, "failover": check.ClassToken, "clock-forward": check.ClassToken},
	"postgres": {"restart-wiped": check.ClassToken, "failover": check.ClassToken, "clock-forward": check.ClassToken},
	"etcd":     {"restart-wiped": check.ClassToken, "pause-leader": check.ClassToken},
}

func TestDoubleGrantsAreJudged(t *testing.T) {
	for _, of := range kinds.All() {
		backend := of.Name
		for _, f := range faults.All() {
			if !f.Concerns(of) {
				continue
			}
			want := documented[backend][f.Name]
			if want == "" {
				want = check.ClassBroken
			}
			if got := check.Cells([]results.Round{twoHolders(backend, f)})[0]; got.Class != want {
				t.Errorf("%s under %s: %s, want %s", backend, f.Name, got.Class, want)
			}
		}
	}
}

// twoHolders returns the record of a round in which the store forgets a grant at the fault's start.
func twoHolders(backend string, f faults.Fault) results.Round {
	const ms = 1_000_000
	return results.Round{
		Backend: backend, Kind: results.KindPlugin, Fencing: "durable", Fault: f.Name, Conditions: f.Produces, Round: 1, Names: 1, Hits: 1,
		TTLms: 2000, InjectedNs: 1000 * ms, HealedNs: 4000 * ms,
		Seen: results.Seen{Holds: []results.Hold{
			{Host: 0, Token: 1, GrantedNs: 2 * ms, ValidNs: 1200 * ms, DoneNs: 1201 * ms},
			{Host: 1, Token: 2, AskedNs: 1000 * ms, GrantedNs: 1005 * ms, ValidNs: 1500 * ms, ReleaseNs: 1600 * ms, ReleasedNs: 1602 * ms},
		}},
	}
}
