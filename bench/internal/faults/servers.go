package faults

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

const (
	// elects is longer than the election of a leader takes. It is also longer than the time for which
	// clients keep using a member that knows no leader.
	elects = 3 * time.Second
	// quarantined is longer than the 10 s (the longest TTL) for which a restarted node does not vote.
	quarantined = 11 * time.Second
)

var (
	frozenFor = Span{10 * time.Millisecond, 6 * time.Second}
	downFor   = Span{50 * time.Millisecond, 3 * time.Second}
)

// serverActions are actions on one server of a store or on all its servers. Actions on one server
// never overlap in time, so that the unharmed servers are a majority.
var serverActions = slices.Concat(freezes, crashes, []Action{
	clockAction("clock-forward", "the clock of %s jumps ahead", Span{}, claim.ClockForward),
	clockAction("clock-back", "the clock of %s jumps back", Span{}, claim.ClockBack),
	clockAction("clock-astray", "the clock of %s jumps ahead, and is set right again", downFor, claim.ClockForward, claim.ClockBack),
})

var freezes = []Action{
	{
		Name: "freeze-servers", Does: "all servers are frozen", On: OnStore, Uses: UsesProcess, Only: func(_ *servers.Kind, in servers.Setting) bool { return !in.Elects },
		Needs: []servers.Capability{servers.CapServers}, Lasts: frozenFor, Stops: StopsAll, Recovers: time.Second,
		Inject: freezeAll, Heal: resumeAll,
	},
	{
		// The leader is frozen, too. So leases may end, but not within the first 1.5 s: the shortest TTL
		// is 2 s, and leases are renewed every 0.5 s.
		Name: "freeze-members", Does: "all members are frozen", On: OnStore, Uses: UsesProcess, Only: electing,
		Needs: []servers.Capability{servers.CapServers}, Lasts: frozenFor, Stops: StopsAll, Recovers: elects,
		Makes: []claim.Condition{claim.LeaderPaused}, MakesAfter: 1500 * time.Millisecond,
		Inject: freezeAll, Heal: resumeAll,
	},
	{
		Name: "slow-servers", Does: "all servers get a third of the time", On: OnStore, Uses: UsesProcess,
		Needs: []servers.Capability{servers.CapServers}, Lasts: frozenFor, Heal: end,
		Inject: func(_ context.Context, w *System, e Event) error {
			return inject.Each(w.Servers, func(s *servers.Server) error {
				one := servers.Nodes{s}
				return w.slow(e, func() (func() error, error) {
					return func() error { return one.EachRunning((*servers.Server).Resume) }, one.EachRunning((*servers.Server).Freeze)
				})
			})
		},
	},
	{
		Name: "freeze-node", Does: "%s is frozen, and the other nodes are not", On: OnServer, Uses: UsesStore, Only: voting,
		Needs: []servers.Capability{servers.CapServers}, Lasts: frozenFor,
		Inject: func(_ context.Context, w *System, e Event) error { return w.Servers[e.Target].Freeze() }, Heal: resumeAll,
	},
	{
		Name: "freeze-follower", Does: "a member that does not lead is frozen for longer than any TTL", On: OnStore, Uses: UsesStore, Only: electing,
		Needs: []servers.Capability{servers.CapLeader}, Lasts: Span{quarantined, quarantined}, Stops: StopsAll, StopsFor: elects, Recovers: time.Second,
		Inject: func(ctx context.Context, w *System, e Event) error { return w.FreezeMember(ctx, 1) }, Heal: resumeAll,
	},
	{
		Name: "freeze-leader", Does: "the member that leads is frozen for longer than any TTL", On: OnStore, Uses: UsesStore, Only: electing,
		Needs: []servers.Capability{servers.CapLeader}, Lasts: Span{quarantined, quarantined}, Stops: StopsAll, Recovers: elects, Makes: []claim.Condition{claim.LeaderPaused},
		Inject: func(ctx context.Context, w *System, e Event) error { return w.FreezeMember(ctx, 0) }, Heal: resumeAll,
	},
}

var crashes = []Action{
	crash(true, Action{
		Name: "crash-servers", Does: "all servers crash, and start again with their data", On: OnStore, Stops: StopsAll, Recovers: elects,
		Only: func(s *servers.Kind, in servers.Setting) bool { return !in.Sharded && !s.Has(servers.CapVotes) },
	}),
	crash(true, Action{
		Name: "crash-nodes", Does: "all nodes crash, and start again with their data", On: OnStore, Stops: StopsAll, Recovers: quarantined,
		Only: voting, Makes: []claim.Condition{claim.Restarted},
	}),
	crash(true, Action{
		Name: "crash-member", Does: "%s crashes, and starts again with its data, while the other members serve", On: OnServer, Stops: StopsAll, Recovers: elects,
		Only: electing,
	}),
	crash(true, Action{
		Name: "crash-node", Does: "%s crashes, and starts again with its data, while the other nodes vote", On: OnServer, Recovers: quarantined,
		Only: voting,
	}),
	crash(false, Action{
		Name: "wipe-servers", Does: "all servers crash, and start again without their data", On: OnStore, Stops: StopsAll, Recovers: elects,
		Only: func(s *servers.Kind, in servers.Setting) bool {
			return !in.Sharded && !in.Copied && !s.Has(servers.CapVotes)
		},
		Makes: []claim.Condition{claim.DataLost},
	}),
	crash(false, Action{
		Name: "wipe-nodes", Does: "all nodes crash, and start again without their data", On: OnStore, Stops: StopsAll, Recovers: quarantined,
		Only: voting, Makes: []claim.Condition{claim.DataLost, claim.Restarted},
	}),
	// No lease is lost, because the restarted node votes again only when all leases that it may have
	// voted for are over.
	crash(false, Action{
		Name: "wipe-node", Does: "%s crashes, and starts again without its data, while the other nodes vote", On: OnServer, Recovers: quarantined,
		Only: voting,
	}),
}

// crash completes the action a, whose Inject crashes servers and whose Heal restarts them. If
// keepData is set, the servers restart with their data.
func crash(keepData bool, a Action) Action {
	a.Uses, a.Lasts, a.Needs = UsesStore, downFor, []servers.Capability{servers.CapServers}
	if keepData {
		a.Needs = []servers.Capability{servers.CapKeeps}
	}
	of := func(w *System, e Event) servers.Nodes {
		if a.On == OnServer {
			return w.Servers[e.Target : e.Target+1]
		}
		return w.Servers
	}
	a.Inject = func(_ context.Context, w *System, e Event) error { return of(w, e).EachRunning((*servers.Server).Stop) }
	a.Heal = func(ctx context.Context, w *System, e Event) error { return of(w, e).Start(ctx, keepData) }
	return a
}

func electing(_ *servers.Kind, in servers.Setting) bool { return in.Elects }
func voting(s *servers.Kind, _ servers.Setting) bool    { return s.Has(servers.CapVotes) }

// each(do) returns an Inject function that calls do(s) for each running server s in e.Share.
func each(do func(*servers.Server) error) func(context.Context, *System, Event) error {
	return func(_ context.Context, w *System, e Event) error {
		return w.Servers[:e.Share.of(len(w.Servers))].EachRunning(do)
	}
}

var (
	freezeAll = each((*servers.Server).Freeze)
	resumeAll = each((*servers.Server).Resume)
)

// clockAction returns an action that moves the clock of a server by 0.4 s to one hour. If the
// parameter lasts is zero, the clock stays wrong, because setting it right would be a second jump.
func clockAction(name, does string, lasts Span, makes ...claim.Condition) Action {
	a := Action{
		Name: name, Does: does, On: OnServer, Uses: UsesStore, Needs: []servers.Capability{servers.CapClock}, Lasts: lasts, Makes: makes,
		Only: func(_ *servers.Kind, in servers.Setting) bool { return !in.Sharded },
		Inject: func(_ context.Context, w *System, e Event) error {
			by := time.Duration(float64(time.Hour) * math.Pow(10, -4*(1-e.Amount)))
			if makes[0] == claim.ClockBack {
				by = -by
			}
			return w.ShiftClock(e.Target, by)
		},
	}
	if lasts[1] > 0 {
		a.Heal = func(_ context.Context, w *System, e Event) error { return w.ShiftClock(e.Target, 0) }
	}
	return a
}

// drawnOperations returns the operations of store operators, as actions that a search may draw.
func drawnOperations() []Action {
	return operations(func(k *servers.Kind) []servers.Operation { return k.Operations })
}

func operations(of func(*servers.Kind) []servers.Operation) []Action {
	var all []Action
	for _, backend := range kinds.Names() {
		for _, o := range of(kinds.Of(backend)) {
			all = append(all, operation(backend, o))
		}
	}
	return all
}

func operation(backend string, o servers.Operation) Action {
	a := Action{
		Name: backend + "-" + o.Name, Does: o.Does, On: OnStore, Uses: UsesStore, Lasts: o.Lasts, StopsFor: o.StopsFor, Recovers: o.Recovers, Makes: o.Makes,
		Inject: stepOf(o.Do),
	}
	if o.Server {
		a.On = OnServer
	}
	switch {
	case o.Stops:
		a.Stops = StopsAll
	case o.StopsGrants:
		a.Stops = StopsGrants
	}
	if o.Undo != nil {
		a.Heal = stepOf(o.Undo)
	}
	a.Only = func(s *servers.Kind, in servers.Setting) bool {
		return s.Name == backend && (len(o.Settings) == 0 || slices.Contains(o.Settings, in.Name))
	}
	return a
}

// stepOf returns an Inject function that does a step on the event's server or on all servers.
func stepOf(step servers.Step) func(context.Context, *System, Event) error {
	return func(ctx context.Context, w *System, e Event) error {
		if e.Target == everywhere {
			return servers.OnEach(step)(ctx, w.Environment, 0)
		}
		return step(ctx, w.Environment, e.Target)
	}
}
