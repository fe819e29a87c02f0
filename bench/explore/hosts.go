package explore

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/bench/fault"
)

// hostActions are what happens to the processes of a host.
var hostActions = []Action{
	{
		Name: "freeze-host", Does: "%s stands still", On: OnHost, Uses: UsesProcess, Lasts: Span{10 * time.Millisecond, 6 * time.Second}, Stops: StopsHost,
		Inject: func(_ context.Context, w *World, e Event) error { return fault.Freeze(w.Hosts[e.Target].Pid()) },
		Heal:   func(_ context.Context, w *World, e Event) error { return fault.Resume(w.Hosts[e.Target].Pid()) },
	},
}
