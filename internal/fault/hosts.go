package fault

import (
	"context"
	"errors"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
)

// hosts are faults of the holder's processes.
var hosts = []Fault{
	{
		Name: "freeze-host", Does: "the holder is frozen until another host has its locks, then goes on",
		Produces: []claim.Condition{claim.HostStopped},
		Needs:    []servers.Capability{servers.CapRival},
		Inject:   func(_ context.Context, s *Setup) error { return inject.Freeze(s.Holder.Pid()) },
		Heal:     func(_ context.Context, s *Setup) error { return inject.Resume(s.Holder.Pid()) },
	},
	{
		Name: "freeze-plugin", Does: "the holder's plugin process is frozen", KeepsLeases: true, ActsTTLs: 1.5,
		Produces: []claim.Condition{claim.PluginDied},
		Inject:   func(_ context.Context, s *Setup) error { return inject.Freeze(s.Holder.PluginPid()) },
	},
	{
		Name: "kill-host", Does: "the holder is killed, its plugin is not",
		Needs:  []servers.Capability{servers.CapRival},
		Inject: func(_ context.Context, s *Setup) error { return inject.Kill(s.Holder.Pid()) },
	},
	{
		Name: "kill-plugin", Does: "the holder's plugin process is killed", KeepsLeases: true, ActsTTLs: 1.5,
		Produces: []claim.Condition{claim.PluginDied},
		Inject:   func(_ context.Context, s *Setup) error { return inject.Kill(s.Holder.PluginPid()) },
	},
	{
		Name: "kill-both", Does: "the holder and its plugin are killed",
		Produces: []claim.Condition{claim.PluginDied},
		Needs:    []servers.Capability{servers.CapRival},
		Inject: func(_ context.Context, s *Setup) error {
			return errors.Join(inject.Kill(s.Holder.PluginPid()), inject.Kill(s.Holder.Pid()))
		},
	},
}
