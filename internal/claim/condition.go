package claim

// Condition is something that was done, or a setting, under which a claim may
// not hold.
type Condition string

// The conditions.
const (
	// What happens to data.
	DataLost        Condition = "data-lost"
	WritesLost      Condition = "writes-lost"
	OldData         Condition = "old-data-restored"
	ReplicaPromoted Condition = "replica-promoted"
	FailedOver      Condition = "failed-over"
	Evicting        Condition = "evicting"
	EvictionSeen    Condition = "eviction-seen"
	EndedByHand     Condition = "ended-by-hand"
	// What happens to servers.
	Restarted      Condition = "restarted"
	LeaderPaused   Condition = "leader-paused"
	SlotMoving     Condition = "slot-moving"
	NoSpareReplica Condition = "no-spare-replica"
	SeveralWriters Condition = "several-writers"
	TwoStores      Condition = "two-stores"
	// What happens to clocks.
	ClockForward Condition = "clock-forward"
	ClockBack    Condition = "clock-back"
	// What happens to hosts. These excuse nobody but the host concerned.
	HostStopped Condition = "host-stopped"
	PluginDied  Condition = "plugin-died"
	// Settings.
	QuarantineOff  Condition = "quarantine-off"
	Unfenced       Condition = "unfenced"
	ReplicasWaited Condition = "replicas-waited"
)

// conditions has a clause about each, that follows "where" or "after".
var conditions = []struct {
	condition Condition
	says      string
}{
	{DataLost, "a server has lost its data"},
	{WritesLost, "a server came back from a crash without its last writes"},
	{OldData, "older data were restored on a server"},
	{ReplicaPromoted, "a replica was promoted that had missed the last writes"},
	{FailedOver, "a replica was promoted, in order"},
	{Evicting, "a server evicts keys: it is full, and its `maxmemory-policy` is not `noeviction`"},
	{EvictionSeen, "a server evicts keys, and was told so more than a second before it was full"},
	{EndedByHand, "somebody has ended a lease by hand: `lockbench locks break`, or a statement or command that changes the store's keys or rows"},
	{Restarted, "a majority of the servers was restarted"},
	{LeaderPaused, "the leader of the servers stalled for longer than a TTL, and went on"},
	{SlotMoving, "the slot of a lock is being moved to another node"},
	{NoSpareReplica, "fewer replicas are connected than `wait_replicas` asks for"},
	{SeveralWriters, "hosts write on several nodes of Galera or group replication, or by a proxy that shares connections"},
	{TwoStores, "an address leads to two servers or clusters that do not know each other"},
	{ClockForward, "a server's clock was set forward by more than what is left of a lease, or is ahead by as much of that of the server before it"},
	{ClockBack, "a server's clock was set back, or is behind that of the server before it"},
	{HostStopped, "the host's process was stopped, or got no time to run"},
	{PluginDied, "the plugin process has died, or stalled and was replaced"},
	{QuarantineOff, "`quarantine` is `off`"},
	{Unfenced, "`fencing` is `none`"},
	{ReplicasWaited, "grants wait for replicas (`wait_replicas`)"},
}

// Conditions lists all of them.
func Conditions() []Condition {
	var out []Condition
	for _, c := range conditions {
		out = append(out, c.condition)
	}
	return out
}

// Says is a clause about c for people; "" for one that is not known.
func (c Condition) Says() string {
	for _, of := range conditions {
		if of.condition == c {
			return of.says
		}
	}
	return ""
}
