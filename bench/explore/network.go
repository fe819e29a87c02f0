package explore

import (
	"context"
	"time"

	"github.com/lockbench/lockbench/bench/fault"
)

// networkActions are what happens between a host and the servers.
var networkActions = []Action{
	{
		Name: "black-hole", Does: "nothing passes between %s and the servers", On: OnHost, Uses: UsesPaths, Needs: []fault.Power{fault.PowerPaths},
		Lasts: Span{10 * time.Millisecond, 6 * time.Second}, Stops: StopsHost, Recovers: time.Second,
		Inject: func(_ context.Context, w *World, e Event) error {
			return w.Hosts[e.Target].Harm(e, (*fault.Proxy).BlackHole)
		},
		Heal: func(_ context.Context, w *World, e Event) error { return w.Hosts[e.Target].Heal(e) },
	},
}
