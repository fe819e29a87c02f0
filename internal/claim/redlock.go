package claim

import "time"

// redlock has the exceptions and the times of several independent Redis servers.
var redlock = Terms{
	Turn:       250 * time.Millisecond,
	Reconnects: time.Second,
	Exceptions: []Exception{
		{
			Rules: TwiceForLong(), All: []Condition{ClockForward},
			Why: "the key on a node whose clock has jumped expires, and its vote makes a second majority. " +
				"The quarantine does not help: nothing has restarted. A majority of nodes has seen the holder's token, so the next one is higher",
		},
		{
			Rules: TwiceForLong(), All: []Condition{TwoStores},
			Why: "a node whose address leads hosts to different servers votes twice, once for each. Two addresses of one server are refused",
		},
		{
			Rules: TwiceForLong(), All: []Condition{QuarantineOff}, Any: []Condition{DataLost, WritesLost, OldData},
			Why: "a node that has lost its data votes again at once, also for a lock that it has forgotten",
		},
		{
			Rules: TwiceForLong(), All: []Condition{Evicting},
			Why: "a node that has evicted a lock votes for the next one; see redis",
		},
		{Rules: Late(Survives), All: []Condition{EvictionSeen}},
		{Rules: []Rule{Survives}, All: []Condition{Restarted}},
		{Rules: Late(Orphaned, Leaked), All: []Condition{ClockBack}},
		{Rules: []Rule{Token}, All: []Condition{Restarted, DataLost, ClockBack}},
	},
}
