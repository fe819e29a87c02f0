package fault

import (
	"context"

	"github.com/lockbench/lockbench/internal/claim"
)

// slots move data from one server to another.
var slots = []Fault{{
	Name: "slot-move", Does: "the slots of all locks are moved to other nodes, half of their keys first, the rest 12 s later; TTL 10 s",
	Makes: []claim.Condition{claim.SlotMoving},
	Needs: []Power{PowerRival, PowerSlots}, TTL: longTTL, Keeps: true, Serves: true, ActsTTLs: 1.2,
	Only:   PowerSlots,
	Inject: func(ctx context.Context, s *Scene) error { return s.Slots.Begin(ctx) },
	Heal:   func(ctx context.Context, s *Scene) error { return s.Slots.End(ctx) },
}}
