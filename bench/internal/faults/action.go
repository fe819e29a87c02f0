package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// Action is one kind of thing that happens in a schedule: to a host, to what
// surrounds it, to a network, to a server, or by an operator.
type Action struct {
	Name string
	// Does is a clause for people; "%s" stands for the target, "host B" or "server
	// 2".
	Does string
	On   Target
	// Needs are the capabilities that an environment must have.
	Needs []servers.Capability
	// Only reports whether the action exists in a setting of a store; nil means in all.
	Only func(s *servers.Kind, in servers.Setting) bool
	// Unfit says why the action cannot be done on this machine. It is "" when it can.
	Unfit string
	// Wrapped reports whether it is done to a host with one of [wrappersThatStay].
	Wrapped bool
	// Uses is a resource that no other action on the same target uses at the same
	// time; "" for none.
	Uses Resource
	// Lasts bounds the time until the action is healed; zero for one that is over at once.
	Lasts Span
	// Stops says who may not be served while the action lasts. StopsFor is the limit,
	// after its begin and after its end, if clients find a server that serves them
	// before the action is over.
	Stops    Reach
	StopsFor time.Duration
	// Recovers is how long after its end the hosts concerned may still wait for an
	// election, a restart or a connection. Hosts that it does not stop wait, and lose
	// no lease.
	Recovers time.Duration
	// Swallows reports whether the action leaves requests without a reply, instead of
	// refusing them.
	Swallows bool
	// Ends reports whether the action ends its host.
	Ends bool
	// Makes are the conditions that it makes, under which claims may not hold.
	Makes []claim.Condition

	// Inject begins the action. Heal ends it, and is nil for an action that ends by itself.
	Inject func(ctx context.Context, w *System, e Event) error
	Heal   func(ctx context.Context, w *System, e Event) error
}

// Target is the kind of thing that an action is done to.
type Target string

// The targets. The number of an [Event] says which one.
const (
	OnHost   Target = "host"
	OnServer Target = "server"
	OnStore  Target = "store" // all servers, or the ones that the action picks
)

// Resource is a thing that two actions cannot have at the same time.
type Resource string

// The resources of a target.
const (
	UsesProcess Resource = "process" // of the host, or of the server
	UsesPlugin  Resource = "plugin"
	UsesStore   Resource = "store" // the store's settings, all servers
	UsesMachine Resource = "machine"

	UsesDescriptors Resource = "descriptors"
	UsesDirectory   Resource = "directory"
)

// Reach says who may not be served while an action lasts.
type Reach string

// The reaches.
const (
	StopsNobody Reach = ""
	StopsHost   Reach = "host" // the host that it is done to
	StopsAll    Reach = "all"
	StopsGrants Reach = "grants" // no request for a grant is served; leases are renewed
)

// Span is the shortest and the longest time of something.
type Span [2]time.Duration

// Event is an action at its place in a schedule.
type Event struct {
	Action string `json:"action"`
	Target int    `json:"target"` // number of the host or server, or [everywhere]
	// At is the time of the event, after the callers have begun. With Trigger the
	// event waits from then on for that trigger of host Of.
	At      Duration `json:"at"`
	Trigger Trigger  `json:"trigger,omitempty"`
	Of      int      `json:"of,omitempty"`
	Lasts   Duration `json:"lasts,omitempty"`
	// After is the number, from 1, of another event; At counts from a moment of that
	// one, unless After is 0.
	After int    `json:"after,omitempty"`
	Since Moment `json:"since,omitempty"`
	// Until, if it is not 0, is the number, from 1, of a host. The event ends early,
	// Linger after that host has got all locks that it asks for.
	Until  int      `json:"until,omitempty"`
	Linger Duration `json:"linger,omitempty"`
	// Group is the number, from 1, of the first group that ask and give-back concern;
	// 0 for all. Limit is the time limit of the calls.
	Group int      `json:"group,omitempty"`
	Limit Duration `json:"limit,omitempty"`
	// Share is the part of the servers, or of the paths to them, if not all.
	Share Share `json:"share,omitempty"`
	// AtOnce is set where the event is healed as soon as it is injected.
	AtOnce bool `json:"at_once,omitempty"`
	// Amount is a number from 0 to 1 whose meaning each action chooses.
	Amount float64 `json:"amount,omitempty"`
}

// everywhere is the target of an event that happens to all hosts, or all servers.
const everywhere = -1

// Moment is a moment in the course of an event.
type Moment string

// These are the moments of an event. An event that names none means Injected.
const (
	Begun    Moment = "begun" // just before it is injected
	Injected Moment = "injected"
	Healed   Moment = "healed"
)

// Share is a part of the servers.
type Share string

// The shares of n servers.
const (
	Minority Share = "minority" // the greatest; none of one
	Majority Share = "majority" // the smallest
)

// of is how many of n servers the share has.
func (s Share) of(n int) int {
	switch s {
	case Minority:
		return (n - 1) / 2
	case Majority:
		return n/2 + 1
	}
	return n
}

// Duration is a time that is written as text, "1.5s".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// fits says why an action cannot be done in a setting of a backend. It is "" when it can.
func (a Action) fits(backend, setting string) string {
	of := kinds.Of(backend)
	if !a.knownIn(of, setting) {
		return fmt.Sprintf("it is known for %v", a.knownWhere())
	}
	for _, need := range a.Needs {
		if why := of.Lacks[need]; why != "" {
			return why
		}
	}
	return a.Unfit
}

// knownIn reports whether the action exists in a setting of a store.
func (a Action) knownIn(of *servers.Kind, setting string) bool {
	return a.Only == nil || a.Only(of, of.Setting(setting))
}

// knownWhere lists the backends and settings in which the action exists.
func (a Action) knownWhere() (all []string) {
	for _, of := range kinds.All() {
		for _, setting := range of.SettingNames() {
			if a.knownIn(of, setting) {
				all = append(all, of.Name+"/"+setting)
			}
		}
	}
	return all
}

// KnownFor reports whether the action exists in some environment of a backend.
func (a Action) KnownFor(backend string) bool {
	of := kinds.Of(backend)
	return slices.ContainsFunc(of.SettingNames(), func(setting string) bool { return a.knownIn(of, setting) })
}

// DoesTo says what the action does to a target such as "host B" or "server 2".
func (a Action) DoesTo(whom string) string { return strings.ReplaceAll(a.Does, "%s", whom) }

// Actions are all actions, in the order of their kinds.
func Actions() []Action { return slices.Clone(allActions()) }

// allActions is read by the judgement of every schedule, so it is made once.
var allActions = sync.OnceValue(func() []Action {
	return slices.Concat(hostActions, surroundingActions, networkActions, serverActions, drawnOperations())
})

// action is the event's action. Its name is "" when no action has the event's name,
// which [Schedule.check] reports.
func (e Event) action() Action {
	for _, all := range [][]Action{allActions(), allTableActions()} {
		if i := slices.IndexFunc(all, func(a Action) bool { return a.Name == e.Action }); i >= 0 {
			return all[i]
		}
	}
	return Action{}
}
