package explore

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/bench/fault"
)

// serverActions are what happens to the servers of any store.
var serverActions = []Action{
	{
		Name: "freeze-server", Does: "%s stands still", On: OnServer, Uses: UsesProcess, Needs: []fault.Power{fault.PowerServers},
		Lasts: Span{10 * time.Millisecond, 6 * time.Second}, Stops: StopsAll, Recovers: time.Second,
		Inject: func(_ context.Context, w *World, e Event) error { return w.Scene.Servers[e.Target].Freeze() },
		Heal:   func(_ context.Context, w *World, e Event) error { return w.Scene.Servers[e.Target].Resume() },
	},
}
