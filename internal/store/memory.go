package store

import (
	"context"

	"github.com/lockbench/lockbench/internal/fault"
)

// InPlugin is the backend whose store is in its plugin process: what a call to it
// costs is the boundary.
const InPlugin = "memory"

// memoryKind lives in the plugin process of one host.
var memoryKind = &Store{
	Name: InPlugin,
	Lacks: lacking(nil, "its store lives in one host process, which no other shares",
		fault.CapRival, fault.CapServers, fault.CapPaths, fault.CapMinority, fault.CapLeader, fault.CapKeeps,
		fault.CapClock, fault.CapReplica, fault.CapReadOnly, fault.CapExhaust, fault.CapSentinel, fault.CapSlots,
		fault.CapEvict, fault.CapVotes),
	Settings: []Setting{{Name: Plain, Servers: 1}},
	open:     func(context.Context, *Environment, Requirements) error { return nil },
}
