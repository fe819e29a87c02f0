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
	// Does is a clause for people; "%s" stands for what it is done to, "host B"
	// or "server 2".
	Does string
	On   Target
	// Needs are the capabilities that an environment must have.
	Needs []servers.Capability
	// Only reports whether it is known in a setting of a store; nil means in all.
	Only func(s *servers.Kind, in servers.Setting) bool
	// Unfit says why it cannot be done on this machine, "" when it can.
	Unfit string
	// Wrapped reports whether it is done to a host with one of [wrappersThatStay].
	Wrapped bool
	// Uses is what no other action uses at the same time, on the same target; ""
	// for nothing.
	Uses Resource
	// Lasts bounds the time until it is healed; zero for one that is over at once.
	Lasts Span
	// Stops says who may not be served while it lasts, and StopsFor until when at
	// most, after its begin and its end, if that is not as long as it lasts: clients
	// go where they are served.
	Stops    Reach
	StopsFor time.Duration
	// Recovers is how long after its end those whom it concerns may still wait:
	// for an election, a restart, a connection. Those whom it does not stop wait,
	// and lose no lease.
	Recovers time.Duration
	// Swallows reports whether it leaves requests without an answer, instead of refusing
	// them.
	Swallows bool
	// Ends reports whether the host that it is done to does not live on.
	Ends bool
	// Makes are the conditions that it makes, under which claims may not hold.
	Makes []claim.Condition

	// Inject does it. Heal ends it, and is nil for one that ends by itself.
	Inject func(ctx context.Context, w *System, e Event) error
	Heal   func(ctx context.Context, w *System, e Event) error
}

// Target is what an action is done to.
type Target string

// The targets. The number of an [Event] says which one.
const (
	OnHost   Target = "host"
	OnServer Target = "server"
	OnStore  Target = "store" // all servers, or whichever it finds
)

// Resource is a thing that two actions cannot have at the same time.
type Resource string

// The resources of a target.
const (
	UsesProcess Resource = "process" // of the host, or of the server
	UsesPlugin  Resource = "plugin"
	UsesStore   Resource = "store" // its settings, all servers
	UsesMachine Resource = "machine"

	UsesDescriptors Resource = "descriptors"
	UsesDirectory   Resource = "directory"
)

// Reach is who may not be served while an action lasts.
type Reach string

// The reaches.
const (
	StopsNobody Reach = ""
	StopsHost   Reach = "host" // the one that it is done to
	StopsAll    Reach = "all"
	StopsGrants Reach = "grants" // all who want to be granted something; leases are renewed
)

// Span is the shortest and the longest time of something.
type Span [2]time.Duration

// Event is an action at its place in a schedule.
type Event struct {
	Action string `json:"action"`
	Target int    `json:"target"` // number of the host or server, or [everywhere]
	// At is when, after the callers have begun; or after Trigger of host Of, which
	// is waited for from then on.
	At      Duration `json:"at"`
	Trigger Trigger  `json:"trigger,omitempty"`
	Of      int      `json:"of,omitempty"`
	Lasts   Duration `json:"lasts,omitempty"`
	// After is the number, from 1, of an event of which a moment is what At counts
	// from, unless it is 0.
	After int    `json:"after,omitempty"`
	Since Moment `json:"since,omitempty"`
	// Until, if it is not 0, is the number, from 1, of a host: Linger after that has
	// got all that it asks for, the event ends early.
	Until  int      `json:"until,omitempty"`
	Linger Duration `json:"linger,omitempty"`
	// Group is the number, from 1, of the first group that ask and give-back are
	// about; 0: all are. Limit is that of what is asked.
	Group int      `json:"group,omitempty"`
	Limit Duration `json:"limit,omitempty"`
	// Share is how many servers it concerns, or ways to servers, if not all.
	Share Share `json:"share,omitempty"`
	// AtOnce is set where it is healed as soon as it is injected, which is one then.
	AtOnce bool `json:"at_once,omitempty"`
	// Amount is a number from 0 to 1 that the action makes of what it likes.
	Amount float64 `json:"amount,omitempty"`
}

// everywhere is the target of an event that happens to all hosts, or all servers.
const everywhere = -1

// Moment is one of an event.
type Moment string

// The moments of an event. It is about Injected where it says of none.
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

// of is how many of n it is.
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

// fits says why an action cannot be done in a setting of a backend, "" when it can.
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

// knownIn reports whether it is known in a setting of a store.
func (a Action) knownIn(of *servers.Kind, setting string) bool {
	return a.Only == nil || a.Only(of, of.Setting(setting))
}

// knownWhere lists where it is known, by backend and setting.
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

// KnownFor reports whether it is known in some environment of a backend.
func (a Action) KnownFor(backend string) bool {
	of := kinds.Of(backend)
	return slices.ContainsFunc(of.SettingNames(), func(setting string) bool { return a.knownIn(of, setting) })
}

// DoesTo says what it does to somebody: to "host B" or "server 2".
func (a Action) DoesTo(whom string) string { return strings.ReplaceAll(a.Does, "%s", whom) }

// Actions are all that are known, in the order of their kinds.
func Actions() []Action { return slices.Clone(allActions()) }

// allActions is read by the judgement of every schedule, so it is made once.
var allActions = sync.OnceValue(func() []Action {
	return slices.Concat(hostActions, surroundingActions, networkActions, serverActions, drawnOperations())
})

// action is what happens, without a name when there is none of that name: that is
// found by [Schedule.check].
func (e Event) action() Action {
	for _, all := range [][]Action{allActions(), allTableActions()} {
		if i := slices.IndexFunc(all, func(a Action) bool { return a.Name == e.Action }); i >= 0 {
			return all[i]
		}
	}
	return Action{}
}
