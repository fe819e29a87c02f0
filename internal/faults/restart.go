package faults

import (
	"context"
	"errors"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
)

// restarts crash servers and start them again.
var restarts = []Fault{
	{
		Name: "restart", Does: "every server crashes and starts again with its data",
		Produces: []claim.Condition{claim.Restarted},
		Needs:    []servers.Capability{servers.CapRival, servers.CapServers, servers.CapKeeps},
		Inject:   func(ctx context.Context, s *Setup) error { return restart(ctx, s.Servers, true) }, ActsTTLs: 1.5,
	},
	{
		Name: "restart-wiped", Does: "the server crashes and starts again without its data; of several nodes, one of the three that the holder had reached",
		Produces: []claim.Condition{claim.DataLost},
		Needs:    []servers.Capability{servers.CapRival, servers.CapServers, servers.CapPaths}, RivalAsksLate: true,
		Prepare: reachMajority, Inject: wipe, Heal: reachAll, ActsTTLs: 1.5,
	},
	{
		Name: "restart-wiped-open", Does: "as restart-wiped, with the quarantine of restarted nodes switched off",
		Produces: []claim.Condition{claim.DataLost, claim.QuarantineOff},
		Needs:    []servers.Capability{servers.CapRival, servers.CapServers, servers.CapPaths}, RivalAsksLate: true,
		OnlyFor: servers.CapVotes, Config: map[string]string{"quarantine": "off"}, Control: true,
		Prepare: reachMajority, Inject: wipe, Heal: reachAll, ActsTTLs: 1.5,
	},
}

// restart crashes servers and starts them again.
func restart(ctx context.Context, some servers.Nodes, keepData bool) error {
	return errors.Join(inject.Each(some, (*servers.Server).Stop), some.Start(ctx, keepData))
}

// reachMajority cuts the holder off from all servers that vote but a bare
// majority: it reaches some of them, or a cluster.
func reachMajority(_ context.Context, s *Setup) error {
	if !s.Has(servers.CapVotes) {
		return nil
	}
	return inject.Each(s.Paths[0][minority(s)+1:], (*inject.Proxy).BlackHole)
}

func reachAll(_ context.Context, s *Setup) error {
	return inject.Each(s.Paths[0], (*inject.Proxy).Heal)
}

// wipe restarts without data one of the servers that vote, or all servers.
func wipe(ctx context.Context, s *Setup) error {
	if s.Has(servers.CapVotes) {
		return restart(ctx, s.Servers[:1], false)
	}
	return restart(ctx, s.Servers, false)
}
