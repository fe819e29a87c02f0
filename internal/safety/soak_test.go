package safety

import (
	"slices"
	"testing"

	"github.com/lockbench/lockbench/internal/claim"
)

// TestSoakHasWhatMustBeBorne: every fault once, and none whose double grant is
// documented.
func TestSoakHasWhatMustBeBorne(t *testing.T) {
	for backend, least := range map[string][]string{
		"memory":  {"freeze-plugin", "kill-plugin"},
		"redis":   {"freeze-host", "kill-host", "kill-plugin", "kill-both", "partition-holder", "reset", "latency", "lost-reply", "restart", "read-only"},
		"redlock": {"freeze-host", "partition-minority", "restart", "restart-wiped", "pool-exhausted"},
		"mysql":   {"freeze-host", "black-hole", "restart", "pool-exhausted", "slow-server"},
		"etcd":    {"freeze-host", "partition-minority", "partition-majority", "restart", "read-only"},
	} {
		var names []string
		for _, f := range bearable(backend) {
			if _, documented := claim.TermsOf(backend).Exempt(claim.Overlap, f.Produces); documented || slices.Contains(names, f.Name) {
				t.Errorf("%s meets %s, which is documented or there twice", backend, f.Name)
			}
			names = append(names, f.Name)
		}
		for _, name := range least {
			if !slices.Contains(names, name) {
				t.Errorf("%s never meets %s", backend, name)
			}
		}
	}
}
