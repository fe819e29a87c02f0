package faults

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// Setup is what a fault breaks: the servers, and the ways of two hosts to them,
// which want the same locks.
type Setup = servers.Environment

// Fault is one kind of harm. Prepare and Heal may be nil, and so may Inject: then
// what is done to the holder is the action of the same name.
type Fault struct {
	Name string
	Does string // one line
	// Needs are the capabilities without which it is not run.
	Needs []servers.Capability
	// OnlyFor is the capability of the stores that it is made for; "" for all stores.
	OnlyFor servers.Capability
	// Config is further configuration of the backend.
	Config map[string]string
	// Control reports whether Config turns a safeguard off.
	Control bool
	// TTL of the leases; zero means the scenario's.
	TTL time.Duration
	// KeepsLeases reports whether no lease should be lost to it, however it goes on.
	KeepsLeases bool
	// RestoresService reports whether the outage ends with Heal or, when that is nil, with
	// Inject: from then on a lock that is free is granted within a second. The
	// holder gives half of its locks back in the outage.
	RestoresService bool
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

	// Prepare is called when the holder has half of its locks.
	Prepare func(ctx context.Context, s *Setup) error
	Inject  func(ctx context.Context, s *Setup) error
	Heal    func(ctx context.Context, s *Setup) error
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

// All are the faults in the order in which they are shown.
func All() []Fault {
	return slices.Concat(hosts, partitions, networks, restarts, failovers, slots, clocks, running, evictions)
}

// Names lists the names of [All].
func Names() []string {
	var names []string
	for _, f := range All() {
		names = append(names, f.Name)
	}
	return names
}
