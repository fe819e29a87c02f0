package check

import (
	"testing"

	"github.com/lockbench/lockbench/internal/fault"
	"github.com/lockbench/lockbench/internal/results"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// documented are the double grants of each backend under each fault that are
// written down; of all other cells it is promised that there is none.
var documented = map[string]map[string]Class{
	"redis": {
		"restart-wiped": ClassToken, "failover": ClassToken, "failover-wait": ClassToken, "clock-forward": ClassToken,
		"failover-planned": ClassToken, "evict-at-once": ClassToken,
	},
	"redlock": {
		"restart-wiped-open": ClassToken, "clock-forward": ClassToken, "clock-forward-unfenced": ClassDocumented,
		"evict-at-once": ClassToken,
	},
	"mysql": {"restart-wiped": ClassToken, "failover": ClassToken, "clock-forward": ClassToken},
	"etcd":  {"restart-wiped": ClassToken, "pause-leader": ClassToken},
}

// TestDoubleGrantsAreJudged: a double grant gets the class that is documented.
func TestDoubleGrantsAreJudged(t *testing.T) {
	for _, of := range kinds.All() {
		backend := of.Name
		for _, f := range fault.All() {
			if !f.Concerns(of) {
				continue
			}
			want := documented[backend][f.Name]
			if want == "" {
				want = ClassBroken
			}
			if got := Cells([]results.Round{twoHolders(backend, f)})[0]; got.Class != want {
				t.Errorf("%s under %s: %s, want %s", backend, f.Name, got.Class, want)
			}
		}
	}
}

// twoHolders is a round in which the store forgets a grant when the fault
// is injected.
func twoHolders(backend string, f fault.Fault) results.Round {
	const ms = 1_000_000
	fencing := "durable"
	if f.Config["fencing"] == "none" {
		fencing = "none"
	}
	return results.Round{
		Backend: backend, Kind: results.KindPlugin, Fencing: fencing, Fault: f.Name, Conditions: f.Produces, Round: 1, Names: 1, Hits: 1,
		TTLms: 2000, InjectedNs: 1000 * ms, HealedNs: 4000 * ms,
		Leases: []results.Lease{
			{Host: 0, Token: 1, GrantedNs: 2 * ms, ValidNs: 1200 * ms, DoneNs: 1201 * ms},
			{Host: 1, Token: 2, AskedNs: 1000 * ms, GrantedNs: 1005 * ms, ValidNs: 1500 * ms, ReleaseNs: 1600 * ms, ReleasedNs: 1602 * ms},
		},
	}
}
