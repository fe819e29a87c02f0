package faults

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
)

// partitions cut hosts or servers off. A server that is cut off from everybody
// is one that is frozen: its connections stay open and it answers nothing.
var partitions = []Fault{
	{
		Name: "partition-holder", Does: "nothing passes between the holder and any server; nobody is told",
		Needs:  []servers.Capability{servers.CapRival, servers.CapPaths},
		Inject: func(_ context.Context, s *Setup) error { return inject.Each(s.Paths[0], (*inject.Proxy).BlackHole) },
		Heal:   func(_ context.Context, s *Setup) error { return inject.Each(s.Paths[0], (*inject.Proxy).Heal) },
	},
	{
		Name: "partition-minority", Does: "a minority of the servers is cut off for 5 s; TTL 10 s", TTL: longTTL, KeepsLeases: true, Acts: 5 * time.Second, SeveralServers: true,
		Needs: []servers.Capability{servers.CapRival, servers.CapServers, servers.CapMinority},
		Inject: func(_ context.Context, s *Setup) error {
			return inject.Each(s.Servers[:minority(s)], (*servers.Server).Freeze)
		},
		Heal: func(_ context.Context, s *Setup) error {
			return inject.Each(s.Servers[:minority(s)], (*servers.Server).Resume)
		},
	},
	{
		Name: "pause-leader", Does: "the server that leads is frozen for longer than the TTL of 10 s, and goes on", TTL: longTTL, Acts: longTTL + 1500*time.Millisecond, SeveralServers: true,
		Produces: []claim.Condition{claim.LeaderPaused},
		Needs:    []servers.Capability{servers.CapRival, servers.CapServers, servers.CapMinority, servers.CapLeader},
		Inject:   func(ctx context.Context, s *Setup) error { return s.FreezeMember(ctx, 0) },
		Heal:     func(_ context.Context, s *Setup) error { return inject.Each(s.Servers, (*servers.Server).Resume) },
	},
	{
		Name: "partition-majority", Does: "a majority of the servers, or the only one, is cut off", ActsTTLs: 1.5, SeveralServers: true,
		Needs: []servers.Capability{servers.CapRival, servers.CapServers},
		Inject: func(_ context.Context, s *Setup) error {
			return inject.Each(s.Servers[:minority(s)+1], (*servers.Server).Freeze)
		},
		Heal: func(_ context.Context, s *Setup) error {
			return inject.Each(s.Servers[:minority(s)+1], (*servers.Server).Resume)
		},
	},
}

func minority(s *Setup) int { return (len(s.Servers) - 1) / 2 }
