package fault

import (
	"slices"
	"testing"

	"github.com/lockbench/lockbench/bench/check"
	"github.com/lockbench/lockbench/bench/claim"
	"github.com/lockbench/lockbench/bench/record"
)

// TestConditionsAreKnown: what a fault makes is something that a claim may name.
func TestConditionsAreKnown(t *testing.T) {
	for _, f := range All() {
		for _, c := range f.Makes {
			if c.Says() == "" {
				t.Errorf("%s makes %q, which no claim knows", f.Name, c)
			}
		}
	}
}

// documented are the double grants of each backend under each fault that are
// written down; of all other cells it is promised that there is none.
var documented = map[string]map[string]check.Class{
	"redis": {
		"restart-wiped": check.ClassToken, "failover": check.ClassToken, "failover-wait": check.ClassToken, "clock-forward": check.ClassToken,
		"failover-planned": check.ClassToken, "evict-at-once": check.ClassToken,
	},
	"redlock": {
		"restart-wiped-open": check.ClassToken, "clock-forward": check.ClassToken, "clock-forward-unfenced": check.ClassDocumented,
		"evict-at-once": check.ClassToken,
	},
	"mysql": {"restart-wiped": check.ClassToken, "failover": check.ClassToken, "clock-forward": check.ClassToken},
	"etcd":  {"restart-wiped": check.ClassToken, "pause-leader": check.ClassToken},
}

// newer are faults with a documented double grant of which there are no folders
// without conditions.
var newer = []string{"failover-planned", "evict-at-once"}

// TestDoubleGrantsAreJudged: a double grant gets the class that is documented,
// in folders that have the conditions of their rounds and in older ones.
func TestDoubleGrantsAreJudged(t *testing.T) {
	for _, backend := range claim.Backends() {
		for _, f := range All() {
			if f.Fits(backend, nil) != "" {
				continue
			}
			want := documented[backend][f.Name]
			if want == "" {
				want = check.ClassBroken
			}
			r := twoHolders(backend, f)
			if got := check.Cells([]record.Round{r})[0]; got.Class != want {
				t.Errorf("%s under %s: %s, want %s", backend, f.Name, got.Class, want)
			}
			if slices.Contains(newer, f.Name) {
				continue
			}
			r.Conditions = nil
			if got := check.Cells([]record.Round{r})[0]; got.Class != want {
				t.Errorf("%s under %s, without its conditions: %s, want %s", backend, f.Name, got.Class, want)
			}
		}
	}
}

// twoHolders is a round in which the store forgets a grant when the fault
// strikes.
func twoHolders(backend string, f Fault) record.Round {
	const ms = 1_000_000
	fencing := "durable"
	if f.Config["fencing"] == "none" {
		fencing = "none"
	}
	return record.Round{
		Backend: backend, Kind: record.KindPlugin, Fencing: fencing, Fault: f.Name, Conditions: f.Conditions(), Round: 1, Names: 1, Hits: 1,
		TTLms: 2000, StruckNs: 1000 * ms, HealedNs: 4000 * ms,
		Leases: []record.Lease{
			{Host: 0, Token: 1, GrantedNs: 2 * ms, ValidNs: 1200 * ms, DoneNs: 1201 * ms},
			{Host: 1, Token: 2, AskedNs: 1000 * ms, GrantedNs: 1005 * ms, ValidNs: 1500 * ms, ReleaseNs: 1600 * ms, ReleasedNs: 1602 * ms},
		},
	}
}
