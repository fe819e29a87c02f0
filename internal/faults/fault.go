package faults

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// Fault is a named schedule of the table: a holder has half of its locks when it is
// prepared and all of them when it happens, and a rival wants them.
type Fault struct {
	Name string
	Does string // one line
	// Prepare and Events are what happens. An action that begins with a star is that
	// of the backend, and one that is not known for its servers does not happen. What
	// is prepared lasts until the end, unless it says for how long.
	Prepare, Events []Event
	// Needs are the capabilities without which it is not run.
	Needs []servers.Capability
	// OnlyFor is the capability of the stores that it is made for; "" for all stores.
	OnlyFor servers.Capability
	// Config is further configuration of the backend.
	Config map[string]string
	// Control reports whether Config turns a safeguard off.
	Control bool
	// TTL of the leases; zero means that of the table.
	TTL time.Duration
	// KeepsLeases reports whether no lease should be lost to it, however it goes on.
	KeepsLeases bool
	// Restores is when its outage ends, if a lock that is free is to be granted within
	// a second from then on. The holder gives half of its locks back in the outage.
	Restores Moment
	// SeveralServers reports whether it is shown on several servers, where the backend can have
	// several or one.
	SeveralServers bool
	// Produces are the conditions that it makes, of those that claims name.
	Produces []claim.Condition
	// RivalAsksLate reports whether the rival asks only after the injection.
	RivalAsksLate bool
	// Acts is for how long, in TTLs or as it is; zero for both means until the
	// rival has been granted every lock.
	ActsTTLs float64
	Acts     time.Duration
}

// Concerns reports whether the fault has anything to do with a store: one that is
// made for those with a capability has not with the others.
func (f Fault) Concerns(k *servers.Kind) bool { return f.OnlyFor == "" || k.Has(f.OnlyFor) }

// Fits says why the fault cannot be shown on a store, "" when it can.
func (f Fault) Fits(k *servers.Kind) string {
	if !f.Concerns(k) {
		var names []string
		for _, other := range kinds.All() {
			if f.Concerns(other) {
				names = append(names, other.Name)
			}
		}
		return fmt.Sprintf("it is made for %v", names)
	}
	for _, need := range f.Needs {
		if why := k.Lacks[need]; why != "" {
			return why
		}
	}
	return ""
}

// DoesAction reports whether the fault does an action, on some store.
func (f Fault) DoesAction(name string) bool {
	return slices.ContainsFunc(slices.Concat(f.Prepare, f.Events), func(e Event) bool {
		of, everyStore := strings.CutPrefix(e.Action, "*")
		return e.Action == name || everyStore && strings.HasSuffix(name, of)
	})
}

// setting is that in which it is shown on a store.
func (f Fault) setting(k *servers.Kind) string {
	is := func(s servers.Setting) bool { return true }
	switch {
	case slices.Contains(f.Needs, servers.CapReplica):
		return servers.WithReplica
	case slices.Contains(f.Needs, servers.CapSlots):
		is = func(s servers.Setting) bool { return s.Sharded }
	case f.SeveralServers && k.Has(servers.CapLeader):
		is = func(s servers.Setting) bool { return s.Elects }
	}
	return k.Settings[slices.IndexFunc(k.Settings, is)].Name
}

// known are those events of which the actions are known in a setting of a store.
func known(k *servers.Kind, setting string, events []Event) []Event {
	var all []Event
	for _, e := range events {
		if of, everyStore := strings.CutPrefix(e.Action, "*"); everyStore {
			e.Action = k.Name + of
		}
		if a := e.action(); a.Name != "" && a.knownIn(k.Name, setting) {
			all = append(all, e)
		}
	}
	return all
}

// Names lists the names of [All].
func Names() []string {
	var names []string
	for _, f := range All() {
		names = append(names, f.Name)
	}
	return names
}
