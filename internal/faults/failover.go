package faults

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
)

// failovers promote a replica. In the first two it has not received the last
// writes: the first half of the locks is replicated, the second is not.
var failovers = []Fault{
	{
		Name: "failover", Does: "the master dies; a replica that did not receive half of the grants takes over, and the holder learns of it 500 ms after its rival",
		Produces: []claim.Condition{claim.ReplicaPromoted},
		Needs:    []servers.Capability{servers.CapRival, servers.CapPaths, servers.CapReplica}, RivalAsksLate: true, ActsTTLs: 1.5,
		Prepare: severLink, Inject: promote,
	},
	{
		Name: "failover-wait", Does: "as failover, with grants that wait for the replica (wait_replicas=1); TTL 10 s",
		Produces: []claim.Condition{claim.ReplicaPromoted, claim.ReplicasWaited},
		Needs:    []servers.Capability{servers.CapRival, servers.CapPaths, servers.CapReplica}, TTL: longTTL, KeepsLeases: true, RestoresService: true, RivalAsksLate: true, Acts: untilRenewed,
		OnlyFor: servers.CapReplica, Config: map[string]string{"wait_replicas": "1"},
		Prepare: severLink, Inject: promote,
	},
	{
		Name: "failover-planned", Does: "Sentinel lets one of two replicas take over, in order, with wait_replicas=1; TTL 10 s",
		Produces: []claim.Condition{claim.ReplicaPromoted, claim.ReplicasWaited},
		Needs:    []servers.Capability{servers.CapRival, servers.CapSentinel}, TTL: longTTL, KeepsLeases: true, RestoresService: true, Acts: untilRenewed,
		OnlyFor: servers.CapSentinel, Config: map[string]string{"wait_replicas": "1"},
		Inject: func(ctx context.Context, s *Setup) error { return s.Make(ctx, servers.CapSentinel, true) },
	},
	{
		Name: "demotion", Does: "a replica is promoted and the master made its replica, to which the address leads for another 1.5 s; TTL 10 s",
		Needs: []servers.Capability{servers.CapRival, servers.CapPaths, servers.CapReplica}, TTL: longTTL, KeepsLeases: true, RestoresService: true, Acts: 1500 * time.Millisecond,
		Inject: demote, Heal: readdress((*inject.Proxy).Retarget),
	},
	{
		Name: "demotion-uncut", Does: "as demotion, and what leads hosts elsewhere cuts no connection: those that there are stay at the old master",
		Needs: []servers.Capability{servers.CapRival, servers.CapPaths, servers.CapReplica}, TTL: longTTL, KeepsLeases: true, RestoresService: true, Acts: 1500 * time.Millisecond,
		Inject: demote, Heal: readdress((*inject.Proxy).Lead),
	},
}

// untilRenewed is long enough for each lease of longTTL to be renewed.
const untilRenewed = longTTL / 2

// learnsLater is how much later than its rival the holder learns of a new
// master. Clients learn of one at different times, by a second and more.
const learnsLater = 500 * time.Millisecond

func severLink(_ context.Context, s *Setup) error { return s.Link.BlackHole() }

func promote(ctx context.Context, s *Setup) error {
	if err := s.TakeOver(ctx, s.Paths[1][0].Retarget); err != nil {
		return err
	}
	s.Later("failover", learnsLater, func() error { return s.Paths[0][0].Retarget(s.Replica.Addr()) })
	return nil
}

func demote(ctx context.Context, s *Setup) error {
	return errors.Join(s.Replica.Promote(ctx), s.Replica.Lead(ctx, s.Servers[0].Addr()))
}

// readdress leads hosts to the new master.
func readdress(by inject.Leading) func(context.Context, *Setup) error {
	return func(_ context.Context, s *Setup) error {
		return inject.Each(slices.Concat(s.Paths...), func(p *inject.Proxy) error { return by(p, s.Replica.Addr()) })
	}
}
