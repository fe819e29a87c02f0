package check

import (
	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/record"
)

// conditionsOf are those that the fault of a round makes.
func conditionsOf(r record.Round) []claim.Condition {
	if len(r.Conditions) == 0 {
		return unrecorded[r.Fault]
	}
	return r.Conditions
}

// unrecorded are the conditions of faults that were run before rounds had them.
// Newer faults do not belong here.
var unrecorded = map[string][]claim.Condition{
	"restart-wiped":          {claim.DataLost},
	"restart-wiped-open":     {claim.DataLost, claim.QuarantineOff},
	"failover":               {claim.ReplicaPromoted},
	"failover-wait":          {claim.ReplicaPromoted, claim.ReplicasWaited},
	"clock-forward":          {claim.ClockForward},
	"clock-forward-unfenced": {claim.ClockForward, claim.Unfenced},
	"pause-leader":           {claim.LeaderPaused},
}
