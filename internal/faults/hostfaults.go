package faults

import (
	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/servers"
)

// hosts are faults of the holder's processes: actions of the same names.
var hosts = []Fault{
	{
		Name: "freeze-host", Does: "the holder is frozen until another host has its locks, then goes on",
		Produces: []claim.Condition{claim.HostStopped},
		Needs:    []servers.Capability{servers.CapRival},
	},
	{
		Name: "freeze-plugin", Does: "the holder's plugin process is frozen", KeepsLeases: true, ActsTTLs: 1.5,
		Produces: []claim.Condition{claim.PluginDied},
	},
	{
		Name: "kill-host", Does: "the holder is killed, its plugin is not",
		Needs: []servers.Capability{servers.CapRival},
	},
	{
		Name: "kill-plugin", Does: "the holder's plugin process is killed", KeepsLeases: true, ActsTTLs: 1.5,
		Produces: []claim.Condition{claim.PluginDied},
	},
	{
		Name: "kill-both", Does: "the holder and its plugin are killed",
		Produces: []claim.Condition{claim.PluginDied},
		Needs:    []servers.Capability{servers.CapRival},
	},
}
