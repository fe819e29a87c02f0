package claim

import "time"

var etcd = Terms{
	Turn:        3 * time.Second,
	ExpiresLate: time.Second + 500*time.Millisecond,
	Reconnects:  time.Second,
	Exceptions: []Exception{
		{
			Rules: TwiceForLong(), All: []Condition{LeaderPaused},
			Why: "a leader that goes on, after a pause of its virtual machine or a disk that hung, may revoke leases that were renewed at its successor. " +
				"The holder is told by its watch, in milliseconds and usually before the next grant, but that is no promise. " +
				"A stall of 2 s also takes the queue entries of waiters, with their order, and locks that were granted in the queue and not renewed yet",
		},
		{
			Rules: Twice(), All: []Condition{DataLost},
			Why: "the key is lost with the cluster's data. The new cluster's tokens begin above the clock of the host that comes first",
		},
		{
			Rules: TwiceForLong(Token), All: []Condition{WritesLost},
			Why: "a member that runs with `--unsafe-no-fsync` may forget what it has promised, and gives out the same revisions (the source of tokens) twice",
		},
		{
			Rules: TwiceForLong(Token), All: []Condition{OldData},
			Why: "an older snapshot brings back old leases and old revisions, unless it is restored with `--bump-revision`",
		},
		{
			Rules: TwiceForLong(Token), All: []Condition{TwoStores},
			Why: "each cluster grants every lock. A host whose addresses lead to both grants nothing, warns once, and its check fails. " +
				"It looks at its first acquire and at most every 30 s in its check, and sees only members that answer. It grants again 10 s after it last saw the second cluster. " +
				"Hosts that are led to one cluster each do not notice",
		},
		{Rules: []Rule{Token}, All: []Condition{DataLost, ClockBack}},
	},
}
