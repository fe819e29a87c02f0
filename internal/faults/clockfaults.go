package faults

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/servers"
)

// clocks move the wall clock of a server: of several nodes, that of one of the
// three that the holder had reached.
var clocks = []Fault{
	{
		Name: "clock-forward", Does: "the server's clock jumps an hour ahead; of several nodes, that of one of the three that the holder had reached",
		Produces: []claim.Condition{claim.ClockForward},
		Needs:    []servers.Capability{servers.CapRival, servers.CapServers, servers.CapPaths, servers.CapClock}, RivalAsksLate: true, ActsTTLs: 1.5,
		Prepare: reachMajority, Inject: jump(time.Hour), Heal: reachAll,
	},
	{
		Name: "clock-forward-unfenced", Does: "as clock-forward, without tokens (fencing=none)",
		Produces: []claim.Condition{claim.ClockForward, claim.Unfenced},
		Needs:    []servers.Capability{servers.CapRival, servers.CapServers, servers.CapPaths, servers.CapClock}, RivalAsksLate: true, ActsTTLs: 1.5,
		OnlyFor: servers.CapVotes, Config: map[string]string{"fencing": "none"}, Control: true,
		Prepare: reachMajority, Inject: jump(time.Hour), Heal: reachAll,
	},
	{
		Name: "clock-back", Does: "the server's clock jumps an hour back and stays there; of several nodes, that of one of the three that the holder had reached",
		Produces: []claim.Condition{claim.ClockBack},
		Needs:    []servers.Capability{servers.CapRival, servers.CapServers, servers.CapPaths, servers.CapClock}, RivalAsksLate: true, ActsTTLs: 1.5,
		// Turning it forward again would be clock-forward.
		Prepare: reachMajority, Inject: jump(-time.Hour), Heal: reachAll,
	},
}

func jump(by time.Duration) func(context.Context, *Setup) error {
	return func(_ context.Context, s *Setup) error { return s.Clocks[0].Shift(by) }
}
