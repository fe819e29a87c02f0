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

// Action is one kind of harm or change that a schedule can contain. Its target is a host, a host's
// surroundings or network, or a server. Some actions are operations by the store's operator.
type Action struct {
	Name string
	// Does is one clause about the action. "%s" stands for the target, for example "host B".
	Does string
	On   Target
	// Needs are the capabilities that the servers of the store must have.
	Needs []servers.Capability
	// Only is a function that reports whether the action exists in a setting of a store, such as a
	// setting with a replica. Nil means that the action exists in all settings.
	Only func(s *servers.Kind, in servers.Setting) bool
	// Unfit is the reason why the action is impossible on this machine, or "" if it is possible.
	Unfit string
	// Wrapped reports whether the host must start its plugin through one of [wrappersThatStay].
	Wrapped bool
	// Uses is the resource that no other action on the same target may use at the same time. If the
	// action needs no such resource, Uses is "".
	Uses Resource
	// Lasts is the shortest and the longest time from the action's start until it is healed. It is
	// zero for an action that is over at once.
	Lasts Span
	// Stops says which hosts may go unserved by the store while the action lasts. If StopsFor is not
	// 0, clients can soon work in spite of the action. Hosts may then go unserved only for StopsFor
	// after the action's start, and for Recovers after its end.
	Stops    Reach
	StopsFor time.Duration
	// Recovers is the longest time for which hosts may wait after the action's end, for an election, a
	// restart or a connection. Even hosts outside of Stops may wait, but must not lose a lease.
	Recovers time.Duration
	// Swallows is set if a request that the action stops gets neither a reply nor an error.
	Swallows bool
	// Ends reports whether the action ends its host.
	Ends bool
	// Makes lists the conditions that the action causes if it lasts for at least MakesAfter.
	// Exceptions to claims apply under such conditions.
	Makes      []claim.Condition
	MakesAfter time.Duration

	// Inject begins the action, and Heal ends it. Heal is nil if the action ends by itself.
	Inject func(ctx context.Context, w *System, e Event) error
	Heal   func(ctx context.Context, w *System, e Event) error
}

// Target is the kind of thing that an action harms or changes.
type Target string

// An [Event] has the number of the host or server that is its target.
const (
	OnHost   Target = "host"
	OnServer Target = "server"
	OnStore  Target = "store" // all servers, or the servers that the action picks
)

// Resource is something that two actions cannot use at the same time.
type Resource string

const (
	UsesProcess Resource = "process" // the process of the host or of the server
	UsesPlugin  Resource = "plugin"
	UsesStore   Resource = "store" // all servers and the store's settings
	UsesMachine Resource = "machine"

	UsesDescriptors Resource = "descriptors"
	UsesDirectory   Resource = "directory"
)

type Reach string

const (
	StopsNobody Reach = ""
	StopsHost   Reach = "host" // the host that the action is done to
	StopsAll    Reach = "all"
	StopsGrants Reach = "grants" // requests for grants are not served, but leases are renewed
)

// Span is a range of durations, from the shortest to the longest.
type Span [2]time.Duration

// Event is an action with its time and target in a schedule.
type Event struct {
	Action string `json:"action"`
	Target int    `json:"target"` // number of the host or server, or [everywhere]
	// At is the time of the event. It counts from the end of the callers' warm-up, which the table of
	// faults leaves out. If Trigger is set, the event then waits for this trigger on host number Of.
	At      Duration `json:"at"`
	Trigger Trigger  `json:"trigger,omitempty"`
	Of      int      `json:"of,omitempty"`
	Lasts   Duration `json:"lasts,omitempty"`
	// After, if not 0, is the number of another event (the first event is 1). The time At then counts
	// from the moment Since of that other event.
	After int    `json:"after,omitempty"`
	Since Moment `json:"since,omitempty"`
	// Until, if not 0, is the number of a host, from 1 on. If each lock of its last request is granted
	// or has failed within Lasts, the event ends after Linger. Otherwise the event ends after Lasts.
	Until  int      `json:"until,omitempty"`
	Linger Duration `json:"linger,omitempty"`
	// Group is the number of a group of locks (the first group is 1), or 0 for all groups. The action
	// "ask" requests the locks of this group, with the time limit Limit. The action "give-back"
	// releases the locks of this group and of all later groups.
	Group int      `json:"group,omitempty"`
	Limit Duration `json:"limit,omitempty"`
	// Share limits the event to a part of the servers, or of the paths to them.
	Share Share `json:"share,omitempty"`
	// AtOnce is set if the event is healed as soon as it is injected.
	AtOnce bool `json:"at_once,omitempty"`
	// Amount, a number from 0 to 1, is a parameter of the action, such as the strength of the harm.
	Amount float64 `json:"amount,omitempty"`
}

// everywhere is the target of an event that concerns all hosts, or all servers.
const everywhere = -1

type Moment string

// If the Since field of an event is "", it means the moment Injected.
const (
	Begun    Moment = "begun" // just before the event is injected
	Injected Moment = "injected"
	Healed   Moment = "healed"
)

type Share string

// These are the parts of the servers that an event can harm.
const (
	Minority Share = "minority" // the largest minority; no server if there is only one
	Majority Share = "majority" // the smallest majority
)

func (s Share) of(n int) int {
	switch s {
	case Minority:
		return (n - 1) / 2
	case Majority:
		return n/2 + 1
	}
	return n
}

// Duration is a duration whose JSON form is a text such as "1.5s".
type Duration time.Duration

func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// fits returns why the action is impossible in a setting of a backend, or "" if it is possible.
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

func (a Action) knownIn(of *servers.Kind, setting string) bool {
	return a.Only == nil || a.Only(of, of.Setting(setting))
}

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

func (a Action) KnownFor(backend string) bool {
	of := kinds.Of(backend)
	return slices.ContainsFunc(of.SettingNames(), func(setting string) bool { return a.knownIn(of, setting) })
}

// DoesTo describes the action on a target such as "host B" or "server 2".
func (a Action) DoesTo(whom string) string { return strings.ReplaceAll(a.Does, "%s", whom) }

func Actions() []Action { return slices.Clone(allActions()) }

// allActions builds the list of actions only once, because Event.action needs it at every call.
var allActions = sync.OnceValue(func() []Action {
	return slices.Concat(hostActions, surroundingActions, networkActions, serverActions, drawnOperations())
})

// action returns the event's action. If there is no such action, it returns an Action without a
// name, and [Schedule.check] reports an error.
func (e Event) action() Action {
	for _, all := range [][]Action{allActions(), allTableActions()} {
		if i := slices.IndexFunc(all, func(a Action) bool { return a.Name == e.Action }); i >= 0 {
			return all[i]
		}
	}
	return Action{}
}
