package check

import "strings"

// Documented says what a backend gives up under a fault by its documentation.
type Documented struct {
	// Token tells that its tokens still rise, so that a resource that checks
	// them is safe although two hold the lock.
	Token bool
	Why   string
}

// documented are the double grants that are known and written down, each with
// its reason; docs/safety.md has the sources. Whatever is not here is promised
// to hold.
var documented = map[string]map[string]Documented{
	"redis": {
		"restart-wiped": {true, "the server has lost the lock with its data"},
		"failover":      {true, "the replica that took over had not received the grant; tokens rise as far as its clock is not behind"},
		"failover-wait": {true, "WAIT makes a lost grant less likely, not impossible"},
		"clock-forward": {true, "the server lets keys expire by its wall clock"},
	},
	"redlock": {
		"restart-wiped-open":     {true, "a node that has lost its data votes again at once"},
		"clock-forward":          {true, "the key on the node whose clock has jumped has expired, and its vote makes a second majority"},
		"clock-forward-unfenced": {false, "as clock-forward, and there are no tokens"},
	},
	"mysql": {
		"restart-wiped": {true, "the server has lost the row with its data"},
		"clock-forward": {true, "rows expire by the server's wall clock"},
	},
	"etcd": {
		"restart-wiped": {true, "the cluster has lost the key with its data"},
		"pause-leader":  {true, "a leader that goes on ends leases that others have renewed meanwhile, by its own books"},
	},
}

// DocumentedFor finds what is known of a backend under a fault.
func DocumentedFor(backend, fault string) (Documented, bool) {
	d, ok := documented[strings.ToLower(backend)][fault]
	return d, ok
}
