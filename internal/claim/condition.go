package claim

// Condition is something that was done, or a setting, under which a claim may
// not hold.
type Condition string

// The conditions. docs/safety.md says what each is.
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
	ReplicasWaited Condition = "replicas-waited"
)
