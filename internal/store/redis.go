package store

import (
	"context"

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
	Name:     "redis",
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
