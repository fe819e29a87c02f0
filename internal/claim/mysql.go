package claim

// mysql has the exceptions of MariaDB and MySQL.
var mysql = inRows(
	"a grant is on disk before it is answered only with `innodb_flush_log_at_trx_commit=1`, and `sync_binlog=1` where there is a binary log",
	Exception{Rules: Late(Survives, Leaked), All: []Condition{SeveralWriters}},
	Exception{Rules: Late(Leaked), All: []Condition{OldData}},
)

// inRows returns the exceptions of databases that keep each lock in a row. Parameter flushed is a
// text that says with which settings a grant is on disk before the reply.
func inRows(flushed string, more ...Exception) Terms {
	return Terms{Exceptions: append([]Exception{
		{
			Rules: Twice(), All: []Condition{DataLost},
			Why: "the row is lost with the data. Tokens still rise, because they are never below the server's clock",
		},
		{
			Rules: TwiceForLong(), All: []Condition{WritesLost},
			Why: flushed,
		},
		{
			Rules: TwiceForLong(), All: []Condition{OldData},
			Why: "grants made after the restored copy are missing",
		},
		{
			Rules: TwiceForLong(), All: []Condition{ReplicaPromoted},
			Why: "replication is asynchronous unless it is configured otherwise: the replica misses the last commits. The next token is higher if its clock is not behind",
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
	}, more...)}
}
