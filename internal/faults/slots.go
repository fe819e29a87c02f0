package faults

import (
	"context"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/servers"
)

// slots move data from one server to another.
var slots = []Fault{{
	Name: "slot-move", Does: "the slots of all locks are moved to other nodes, half of their keys first, the rest 12 s later; TTL 10 s",
	Produces: []claim.Condition{claim.SlotMoving},
	Needs:    []servers.Capability{servers.CapRival, servers.CapSlots}, TTL: longTTL, KeepsLeases: true, RestoresService: true, ActsTTLs: 1.2,
	OnlyFor: servers.CapSlots,
	Inject:  func(ctx context.Context, s *Setup) error { return s.Make(ctx, servers.CapSlots, true) },
	Heal:    func(ctx context.Context, s *Setup) error { return s.Make(ctx, servers.CapSlots, false) },
}}
