// Package fault has the table of faults: what each does to two hosts and to the
// servers between them, by means of package inject.
package fault

import (
	"context"
	"slices"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/proc"
)

// Setup is what a round shows to a fault: two hosts that want the same locks,
// and the servers that grant them. What an environment does not have is nil.
type Setup struct {
	Holder  Host // its rival is left alone
	Servers []Server
	Votes   bool // the servers, each for itself
	// HolderPaths and RivalPaths lead from each host to each server, in the
	// order of Servers.
	HolderPaths, RivalPaths []*inject.Proxy
	Clocks                  []*inject.Clock // of the servers
	// Replica follows the first server over Link.
	Replica Replica
	Link    *inject.Proxy
	// Leader is the index in Servers of the one that leads the others.
	Leader func(ctx context.Context) (int, error)
	// ReadOnly makes the servers refuse writes, Exhaust lets them take no more
	// connections; both until they are called with false.
	ReadOnly, Exhaust func(ctx context.Context, on bool) error
	// FailOver lets a replica take over, in order, and returns when it serves.
	FailOver func(ctx context.Context) error
	// MoveSlots begins to move each slot of a Cluster in which there are keys to
	// another server, with half of its keys; with false it moves the rest.
	MoveSlots func(ctx context.Context, on bool) error
	// Evict lets servers whose memory is full delete keys, until it is called with
	// false, and Fill writes until whatever may be deleted was deleted.
	Evict func(ctx context.Context, on bool) error
	Fill  func(ctx context.Context) error

	inject.Background
}

// Host is a process that takes locks through a plugin process.
type Host interface {
	Pid() int
	PluginPid() int
}

// Server is one server of the store.
type Server interface {
	Addr() string
	Pid() int // 0 while it is down
	Stop() error
	Start(ctx context.Context, keepData bool) error
	Freeze() error
	Resume() error
}

// Replica is a server that follows another one without being waited for.
type Replica interface {
	Server
	// Promote lets it take writes.
	Promote(ctx context.Context) error
	// Lead makes the server at addr, which has been started anew, follow it.
	Lead(ctx context.Context, addr string) error
}

// Capability is something that a fault needs of its environment.
type Capability string

// The capabilities.
const (
	CapRival    Capability = "rival"     // two host processes share the store
	CapServers  Capability = "servers"   // server processes of ours
	CapPaths    Capability = "paths"     // proxies in front of the servers
	CapMinority Capability = "minority"  // more than one server, a majority decides
	CapLeader   Capability = "leader"    // one of the servers leads the others
	CapVotes    Capability = "votes"     // the servers vote each for itself, and not for a while after a restart
	CapKeeps    Capability = "keeps"     // data survive a crash of a server
	CapClock    Capability = "clock"     // the servers' clocks can be moved
	CapReplica  Capability = "replica"   // an asynchronous replica
	CapReadOnly Capability = "read-only" // the servers can be made to refuse writes
	CapExhaust  Capability = "exhaust"   // the servers can be made to refuse connections
	CapSentinel Capability = "sentinel"  // a service lets a replica take over when it is told to
	CapSlots    Capability = "slots"     // the data are spread over servers, and can be moved
	CapEvict    Capability = "evict"     // the servers can be made to delete keys
)

// Fault is one kind of harm. Prepare, Inject and Heal may be nil.
type Fault struct {
	Name string
	Does string // one line
	// Needs are the capabilities without which it is not run.
	Needs []Capability
	// OnlyFor is the capability of the stores that it is made for; "" for all stores.
	OnlyFor Capability
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

// Fits says why the fault cannot be shown in an environment, "" when it can. Lacks
// says for each capability that the environment does not have why that is so.
func (f Fault) Fits(lacks map[Capability]string) string {
	for _, need := range f.Needs {
		if why := lacks[need]; why != "" {
			return why
		}
	}
	return ""
}

// All are the faults in the order in which they are shown.
func All() []Fault {
	return slices.Concat(hosts, partitions, networks, restarts, failovers, slots, clocks, servers, evictions)
}

// Names lists the names of [All].
func Names() []string {
	var names []string
	for _, f := range All() {
		names = append(names, f.Name)
	}
	return names
}

// EachRunning does the same to the servers that run: one that is down stands
// still anyway.
func EachRunning(servers []Server, do func(Server) error) error {
	return inject.Each(servers, func(s Server) error {
		if s.Pid() == 0 {
			return nil
		}
		return do(s)
	})
}

// SlowServers lets servers run for 10 ms and freezes them for 20 ms, over and
// over.
func (s *Setup) SlowServers(by any, servers []Server) {
	s.WhileRunning(by, func(ctx context.Context) bool {
		_ = EachRunning(servers, Server.Freeze) // one that has just crashed
		proc.Sleep(ctx, 20*time.Millisecond)
		_ = EachRunning(servers, Server.Resume)
		return proc.Sleep(ctx, 10*time.Millisecond)
	}, func() error { return EachRunning(servers, Server.Resume) })
}
