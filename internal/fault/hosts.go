package fault

import (
	"context"
	"errors"

	"github.com/lockbench/lockbench/internal/claim"
)

// hosts are faults of the holder's processes.
var hosts = []Fault{
	{
		Name: "freeze-host", Does: "the holder stands still until another host has its locks, then goes on", Freezes: true,
		Makes:  []claim.Condition{claim.HostStopped},
		Needs:  []Power{PowerRival},
		Inject: func(_ context.Context, s *Scene) error { return Freeze(s.Holder.Pid()) },
		Heal:   func(_ context.Context, s *Scene) error { return Resume(s.Holder.Pid()) },
	},
	{
		Name: "freeze-plugin", Does: "the holder's plugin process stands still", Keeps: true, ActsTTLs: 1.5,
		Makes:  []claim.Condition{claim.PluginDied},
		Inject: func(_ context.Context, s *Scene) error { return Freeze(s.Holder.PluginPid()) },
	},
	{
		Name: "kill-host", Does: "the holder is killed, its plugin is not",
		Needs:  []Power{PowerRival},
		Inject: func(_ context.Context, s *Scene) error { return Kill(s.Holder.Pid()) },
	},
	{
		Name: "kill-plugin", Does: "the holder's plugin process is killed", Keeps: true, ActsTTLs: 1.5,
		Makes:  []claim.Condition{claim.PluginDied},
		Inject: func(_ context.Context, s *Scene) error { return Kill(s.Holder.PluginPid()) },
	},
	{
		Name: "kill-both", Does: "the holder and its plugin are killed",
		Makes: []claim.Condition{claim.PluginDied},
		Needs: []Power{PowerRival},
		Inject: func(_ context.Context, s *Scene) error {
			return errors.Join(Kill(s.Holder.PluginPid()), Kill(s.Holder.Pid()))
		},
	},
}
