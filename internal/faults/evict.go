package faults

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/servers"
)

// evictions let servers delete what somebody relies on.
var evictions = []Fault{
	{
		Name: "evict", Does: "the servers are told to evict keys when their memory is full, which it is 3 s later; TTL 10 s",
		Produces: []claim.Condition{claim.EvictionSeen},
		Needs:    []servers.Capability{servers.CapRival, servers.CapEvict}, TTL: longTTL, Acts: noticedBy + longTTL/2,
		OnlyFor: servers.CapEvict,
		Inject:  evict(noticedBy), Heal: keep,
	},
	{
		Name: "evict-at-once", Does: "as evict, and their memory is full already",
		Produces: []claim.Condition{claim.Evicting},
		Needs:    []servers.Capability{servers.CapRival, servers.CapEvict}, TTL: longTTL, Acts: noticedBy + longTTL/2,
		OnlyFor: servers.CapEvict,
		Inject:  evict(0), Heal: keep,
	},
}

// noticedBy is how long a host may take to notice that a server evicts keys.
const noticedBy = 3 * time.Second

func evict(fullAfter time.Duration) func(context.Context, *Setup) error {
	return func(ctx context.Context, s *Setup) error {
		err := s.Make(ctx, servers.CapEvict, true)
		switch {
		case err != nil:
		case fullAfter == 0:
			err = s.Make(ctx, servers.CapFull, true)
		default:
			s.Later("evict", fullAfter, func() error { return s.Make(ctx, servers.CapFull, true) })
		}
		return err
	}
}

func keep(ctx context.Context, s *Setup) error { return s.Make(ctx, servers.CapEvict, false) }
