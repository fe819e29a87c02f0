package faults

import (
	"context"

	"github.com/lockbench/lockbench/internal/servers"
)

// running are faults of servers that go on running.
var running = []Fault{
	{
		Name: "read-only", Does: "the servers refuse writes, as with a full disk", ActsTTLs: 1.5,
		Needs:  []servers.Capability{servers.CapRival, servers.CapReadOnly},
		Inject: func(ctx context.Context, s *Setup) error { return s.Make(ctx, servers.CapReadOnly, true) },
		Heal:   func(ctx context.Context, s *Setup) error { return s.Make(ctx, servers.CapReadOnly, false) },
	},
	{
		Name: "pool-exhausted", Does: "the servers end all connections and take no new ones", ActsTTLs: 1.5,
		Needs:  []servers.Capability{servers.CapRival, servers.CapExhaust},
		Inject: func(ctx context.Context, s *Setup) error { return s.Make(ctx, servers.CapExhaust, true) },
		Heal:   func(ctx context.Context, s *Setup) error { return s.Make(ctx, servers.CapExhaust, false) },
	},
	{
		Name: "slow-server", Does: "the servers get a third of the time", KeepsLeases: true, ActsTTLs: 1.5,
		Needs: []servers.Capability{servers.CapRival, servers.CapServers},
		Inject: func(_ context.Context, s *Setup) error {
			s.SlowServers("slow-server")
			return nil
		},
		Heal: func(_ context.Context, s *Setup) error { return s.EndBackground() },
	},
}
