// Package memory describes the store of the memory backend, which needs no servers.
package memory

import (
	"context"

	"github.com/lockbench/lockbench/internal/servers"
)

// Kind is a store in the plugin process of one host.
var Kind = &servers.Kind{
	Name: "memory",
	Lacks: servers.Lacking(nil, "its store lives in one host process, which no other shares",
		servers.CapShared, servers.CapServers, servers.CapMinority, servers.CapLeader, servers.CapVotes, servers.CapKeeps, servers.CapClock,
		servers.CapReplica, servers.CapExhaust, servers.CapSentinel, servers.CapSlots, servers.CapEvict),
	Settings: []servers.Setting{{Name: servers.Plain, Servers: 1}},
	Prepare:  func(context.Context, *servers.Environment, servers.Requirements) error { return nil },
}
