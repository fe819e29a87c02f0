package fault

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/inject"
)

// partitions cut hosts or servers off. A server that is cut off from everybody
// is one that is frozen: its connections stay open and it answers nothing.
var partitions = []Fault{
	{
		Name: "partition-holder", Does: "nothing passes between the holder and any server; nobody is told",
		Needs:  []Capability{CapRival, CapPaths},
		Inject: func(_ context.Context, s *Setup) error { return inject.Each(s.HolderPaths, (*inject.Proxy).BlackHole) },
		Heal:   func(_ context.Context, s *Setup) error { return inject.Each(s.HolderPaths, (*inject.Proxy).Heal) },
	},
	{
		Name: "partition-minority", Does: "a minority of the servers is cut off for 5 s; TTL 10 s", TTL: longTTL, KeepsLeases: true, Acts: 5 * time.Second, SeveralServers: true,
		Needs:  []Capability{CapRival, CapServers, CapMinority},
		Inject: func(_ context.Context, s *Setup) error { return inject.Each(s.Servers[:minority(s)], Server.Freeze) },
		Heal:   func(_ context.Context, s *Setup) error { return inject.Each(s.Servers[:minority(s)], Server.Resume) },
	},
	{
		Name: "pause-leader", Does: "the server that leads is frozen for longer than the TTL of 10 s, and goes on", TTL: longTTL, Acts: longTTL + 1500*time.Millisecond, SeveralServers: true,
		Produces: []claim.Condition{claim.LeaderPaused},
		Needs:    []Capability{CapRival, CapServers, CapMinority, CapLeader},
		Inject:   func(ctx context.Context, s *Setup) error { return s.FreezeMember(ctx, 0) },
		Heal:     func(_ context.Context, s *Setup) error { return inject.Each(s.Servers, Server.Resume) },
	},
	{
		Name: "partition-majority", Does: "a majority of the servers, or the only one, is cut off", ActsTTLs: 1.5, SeveralServers: true,
		Needs:  []Capability{CapRival, CapServers},
		Inject: func(_ context.Context, s *Setup) error { return inject.Each(s.Servers[:minority(s)+1], Server.Freeze) },
		Heal:   func(_ context.Context, s *Setup) error { return inject.Each(s.Servers[:minority(s)+1], Server.Resume) },
	},
}

// FreezeMember freezes the server that comes so many places after the one that
// leads.
func (s *Setup) FreezeMember(ctx context.Context, after int) error {
	leader, err := s.Leader(ctx)
	if err != nil {
		return err
	}
	return s.Servers[(leader+after)%len(s.Servers)].Freeze()
}

func minority(s *Setup) int { return (len(s.Servers) - 1) / 2 }
