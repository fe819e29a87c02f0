package claim

// redis has the exceptions of Redis: one server, a server with a replica, Cluster or Sentinel.
var redis = Terms{
	Exceptions: []Exception{
		{
			Rules: Twice(), All: []Condition{DataLost},
			Why: "the lock is lost with the data, and is free at once. Tokens still rise, because they are never below the server's clock",
		},
		{
			Rules: TwiceForLong(), All: []Condition{WritesLost},
			Why: "with `appendfsync everysec` a crash loses the last second, and without an append-only file everything",
		},
		{
			Rules: TwiceForLong(), All: []Condition{OldData},
			Why: "grants made after the restored copy are missing",
		},
		{
			Rules: TwiceForLong(), All: []Condition{ReplicaPromoted},
			Why: "replication is asynchronous: a failover can lose a grant. The next token is higher if the promoted server's clock is not behind",
		},
		{
			Rules: TwiceForLong(), All: []Condition{ReplicaPromoted, ReplicasWaited},
			Why: "WAIT makes a lost grant less likely, not impossible: the promoted replica may be one that has not confirmed. " +
				"Among replicas of equal priority, Sentinel prefers those that have received everything. During its failover the old master serves on, and a spare replica confirms its grants",
		},
		{
			Rules: TwiceForLong(Token), All: []Condition{TwoStores},
			Why: "each server grants its locks. An address must lead to one master or to nodes of one Cluster",
		},
		{
			Rules: Twice(), All: []Condition{ClockForward},
			Why: "keys expire by the server's wall clock",
		},
		{
			Rules: Twice(), All: []Condition{ClockBack, FailedOver},
			Why: "keys expire at a time of the wall clock, and that of the promoted server is ahead of its master's",
		},
		{Rules: Late(Orphaned, Leaked), All: []Condition{ClockBack}},
		{
			Rules: Twice(), All: []Condition{Evicting},
			Why: "an evicted lock is a lost lock. The policy is read once a second: a lock evicted before that, or just before the policy is set back, may be granted unknown to its holder",
		},
		{Rules: Late(Survives), All: []Condition{EvictionSeen}},
		{Rules: []Rule{Token}, All: []Condition{ClockBack}, Any: []Condition{DataLost, WritesLost, OldData, ReplicaPromoted, Evicting}},
		{Rules: Late(Survives), All: []Condition{NoSpareReplica}},
		{Rules: Late(), All: []Condition{SlotMoving}},
	},
}
