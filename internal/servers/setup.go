package servers

import (
	"context"
	"errors"
	"time"

	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/proc"
)

// Setup is what may be done to the servers of an environment, and to the paths of
// two hosts to them. What an environment does not have is nil.
type Setup struct {
	Servers []Breakable
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

// Breakable is a server as faults see it.
type Breakable interface {
	Addr() string
	Pid() int // 0 while it is down
	Stop() error
	Start(ctx context.Context, keepData bool) error
	Freeze() error
	Resume() error
}

// Replica is a server that follows another one without being waited for.
type Replica interface {
	Breakable
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

// TakeOver lets the first server die and the replica take over, to which lead leads
// hosts. What has died comes back as a replica, without what it knew.
func (s *Setup) TakeOver(ctx context.Context, lead func(to ...string) error) error {
	old := s.Servers[0]
	if err := errors.Join(old.Stop(), s.Replica.Promote(ctx), lead(s.Replica.Addr())); err != nil {
		return err
	}
	return errors.Join(old.Start(ctx, false), s.Replica.Lead(ctx, old.Addr()))
}

// FreezeMember freezes the server that comes so many places after the one that
// leads.
func (s *Setup) FreezeMember(ctx context.Context, after int) error {
	leader, err := s.Leader(ctx)
	if err != nil {
		return err
	}
	return s.Servers[(leader+after)%len(s.Servers)].Freeze()
}

// StartAll starts servers at the same time: the members of a cluster serve only
// together.
func StartAll(ctx context.Context, servers []Breakable, keepData bool) error {
	return inject.AtOnce(len(servers), func(i int) error { return servers[i].Start(ctx, keepData) })
}

// EachRunning does the same to the servers that run: one that is down stands
// still anyway.
func EachRunning(servers []Breakable, do func(Breakable) error) error {
	return inject.Each(servers, func(s Breakable) error {
		if s.Pid() == 0 {
			return nil
		}
		return do(s)
	})
}

// SlowServers lets servers run for 10 ms and freezes them for 20 ms, over and
// over.
func (s *Setup) SlowServers(by any, servers []Breakable) {
	s.WhileRunning(by, func(ctx context.Context) bool {
		_ = EachRunning(servers, Breakable.Freeze) // one that has just crashed
		proc.Sleep(ctx, 20*time.Millisecond)
		_ = EachRunning(servers, Breakable.Resume)
		return proc.Sleep(ctx, 10*time.Millisecond)
	}, func() error { return EachRunning(servers, Breakable.Resume) })
}
