package store

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/env"
	"github.com/lockbench/lockbench/internal/fault"
)

// The settings of a Redis server besides [Plain].
const (
	WithReplica = "replica" // a replica follows the server, and replaces it
	Cluster     = "cluster" // Redis Cluster, to whose nodes no paths lead
)

// redisKind is one Redis server, with a replica or not, or a Cluster.
var redisKind = &Store{
	Name: "redis",
	Terms: claim.Terms{
		Turn:    func(time.Duration) time.Duration { return 250 * time.Millisecond },
		Remarks: map[claim.Rule]claim.Remark{claim.Woken: {From: "On redis it is 250 ms"}},
		Exceptions: []claim.Exception{
			{
				Rules: claim.Twice(), All: []claim.Condition{claim.DataLost},
				Why:    "the lock is lost with the data, and free at once. Tokens go on above the server's clock",
				Source: 8,
			},
			{
				Rules: claim.Twice(), All: []claim.Condition{claim.WritesLost},
				Why:    "with `appendfsync everysec` a crash takes the last second with it, locks included; without a file of its writes the server forgets everything",
				Source: 8,
			},
			{
				Rules: claim.Twice(), All: []claim.Condition{claim.OldData},
				Why:    "a grant that is younger than what was restored is not in it",
				Source: 8,
			},
			{
				Rules: claim.Twice(), All: []claim.Condition{claim.ReplicaPromoted},
				Why:    "replication is asynchronous: a failover can lose a grant. The next token is higher as far as the promoted server's clock is not behind",
				Source: 9,
			},
			{
				Rules: claim.Twice(), All: []claim.Condition{claim.ReplicaPromoted, claim.ReplicasWaited},
				Why: "WAIT makes a lost grant less likely, not impossible: another replica may be promoted than one that has confirmed. " +
					"Sentinel looks for those that have everything among replicas of one priority. While it fails over, the old master serves on, and a replica to spare confirms what it grants",
				Source: 10,
			},
			{
				Rules: claim.Twice(claim.Token), All: []claim.Condition{claim.TwoStores},
				Why: "each server grants its locks. A host stays at the first server that it was led to, refuses connections to another one while that serves, and its check fails; " +
					"two hosts that were led to different servers do not notice. An address must lead to one master, and in a Cluster to nodes of one",
				Source: 9,
			},
			{
				Rules: claim.Twice(), All: []claim.Condition{claim.ClockForward},
				Why:    "keys expire by the server's wall clock",
				Source: 11,
			},
			{
				Rules: claim.Twice(), All: []claim.Condition{claim.ClockBack, claim.FailedOver},
				Why:    "keys expire at a time of the wall clock, and that of the promoted server is ahead of its master's",
				Source: 11,
			},
			{
				Rules: claim.Late(claim.Orphaned, claim.Leaked), All: []claim.Condition{claim.ClockBack},
				Why:    "keys end at a time of the server's wall clock: a lease that nobody renews or releases lasts for as much longer as the clock was set back",
				Source: 11,
			},
			{
				Rules: claim.Twice(), All: []claim.Condition{claim.Evicting},
				Why:    "an evicted lock is a lost lock. The policy is read once a second, because it can be changed at any time: what is evicted before that, or just before it is set back, may be granted while its holder does not know",
				Source: 17,
			},
			{
				Rules: claim.Late(claim.Survives), All: []claim.Condition{claim.EvictionSeen},
				Why:    "an evicted lock is a lost lock, and nothing is granted before the policy is noeviction again, so that its holder learns of the loss first",
				Source: 17,
			},
			{
				Rules: []claim.Rule{claim.Token}, All: []claim.Condition{claim.ClockBack}, Any: []claim.Condition{claim.DataLost, claim.WritesLost, claim.OldData, claim.ReplicaPromoted, claim.Evicting},
				Why: "after a loss the server's clock is the floor of tokens. A replica whose clock was 500 ms behind gave, 100 ms after its promotion, " +
					"a token that was 391 ms lower than a lost one",
				Source: 24,
			},
			{
				Rules: claim.Late(claim.Survives), All: []claim.Condition{claim.NoSpareReplica},
				Why:    "nothing is granted or renewed then, until the missing replica is back",
				Source: 10,
			},
			{
				Rules: claim.Late(), All: []claim.Condition{claim.SlotMoving},
				Why:    "its leases are renewed and released, and nothing is granted in it until the move has ended",
				Source: 18,
			},
		},
	},
	Lacks:    lacking(nil, "one server has no minority", fault.CapMinority, fault.CapLeader, fault.CapVotes),
	Settings: []Setting{{Name: Plain, Servers: 1}, {Name: WithReplica, Servers: 1}, {Name: Cluster, Servers: clusterNodes, Sharded: true}},
	Forgets:  true,
	Floor:    &Floor{Name: "redis-ping", Open: ping},
	Guard: &Guard{
		Kind: "redis", Open: openThings,
		Start: func(ctx context.Context) (*env.Server, error) { return env.StartRedis(ctx, nil) },
	},
	LeftKeys: leftKeys,

	open:       startRedis,
	operations: append(operationsOn(func(*Operation) {}), onGroups...),
	start: func(ctx context.Context, durable bool) (env.Nodes, error) {
		if durable {
			return env.StartRedisNodes(ctx, 1, &env.RedisOptions{AppendFsync: env.FsyncAlways})
		}
		return env.StartRedisNodes(ctx, 1, nil)
	},
	services: []string{"redis"},
	scheme:   "redis",
	counter:  countRedis,
	sweep:    sweepRedis,
	foreign:  foreignKey,
	program:  env.RedisProgram,
}

func startRedis(ctx context.Context, e *Environment, w Requirements) error {
	switch {
	case w.needs(fault.CapSentinel):
		return startSentinel(ctx, e)
	case w.Setting == Cluster || w.needs(fault.CapSlots):
		return e.asRedis(ctx, w, e.startCluster)
	case w.Setting == WithReplica || w.needs(fault.CapReplica):
		return e.asRedis(ctx, w, e.startRedisServer, e.startReplica)
	}
	return e.asRedis(ctx, w, e.startRedisServer)
}

// startStep starts some servers of an environment, or tells them something.
type startStep func(ctx context.Context, w Requirements) error

// asRedis makes an account for hosts, goes through the steps of a start and gives
// the servers the capabilities of those that speak Redis's protocol.
func (e *Environment) asRedis(ctx context.Context, w Requirements, steps ...startStep) error {
	for _, step := range append([]startStep{e.account}, steps...) {
		if err := step(ctx, w); err != nil {
			return err
		}
	}
	s, err := e.newRedisStore(ctx)
	if err != nil {
		return err
	}
	e.product = s
	e.Setup.ReadOnly, e.Setup.Exhaust = e.switched(missReplica.onEach()), e.switched(oneClient.onEach())
	e.Setup.Evict, e.Setup.Fill = s.evict, s.fill
	return nil
}

// redisLines are what every server is configured with: a replica is served at
// once, and hosts have an account.
var redisLines = []string{"repl-diskless-sync-delay 0", "user " + hostUser + " on >" + hostPassword + " ~* &* +@all"}

func (e *Environment) startRedisServer(ctx context.Context, w Requirements) error {
	wrap, err := e.startClock(ctx, w)
	if err != nil {
		return err
	}
	o := &env.RedisOptions{Wrap: wrap, Lines: redisLines}
	if w.needs(fault.CapKeeps) {
		o.AppendFsync = env.FsyncAlways
	}
	server, err := env.StartRedis(ctx, o)
	if err == nil {
		e.add(server)
	}
	return err
}
