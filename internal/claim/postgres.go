package claim

var postgres = Terms{
	Exceptions: []Exception{
		{
			Rules: Twice(), All: []Condition{DataLost},
			Why: "the row is lost with the data. Tokens still rise, because they are never below the server's clock",
		},
		{
			Rules: TwiceForLong(), All: []Condition{WritesLost},
			Why: "a grant is on disk before it is answered only with `fsync=on` and another `synchronous_commit` than `off`, which a role or a database may have of its own",
		},
		{
			Rules: TwiceForLong(), All: []Condition{OldData},
			Why: "a grant younger than what was restored is not in it",
		},
		{
			Rules: TwiceForLong(), All: []Condition{ReplicaPromoted},
			Why: "replication is asynchronous unless it is configured otherwise: the replica misses the last commits. The next token is higher as far as its clock is not behind",
		},
		{
			Rules: Twice(), All: []Condition{ClockForward},
			Why: "rows end at a time of the server's clock. So even an orderly failover grants twice when the promoted server's clock is ahead. " +
				"Keep the servers' clocks together, or wait for the longest TTL before the new one takes writes",
		},
		{
			Rules: Twice(), All: []Condition{ClockBack, FailedOver},
			Why: "the promoted server's clock is ahead of the earlier one, which was set back. A lease ends too early by the difference",
		},
		{Rules: Late(Orphaned, Leaked), All: []Condition{ClockBack}},
		{Rules: []Rule{Token}, All: []Condition{ClockBack}, Any: []Condition{DataLost, WritesLost, OldData, ReplicaPromoted, EndedByHand}},
	},
}
