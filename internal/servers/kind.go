package servers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/inject"
)

// Kind describes one kind of store, such as Redis, and how to start
// its servers. If a field is zero, the store lacks that feature.
type Kind struct {
	Name string // name of its backend
	// Lacks has a reason for each capability that the store's environment lacks.
	Lacks map[Capability]string
	// Settings are the ways to set up the store's servers. There is at least one.
	Settings []Setting
	// Forgets reports whether locks are lost if a server that is not durable restarts. It is false
	// if other servers make up for the loss.
	Forgets bool
	// Synced lists words of Properties.Durability. If a plugin reports only these words, a grant is on
	// disk before the reply. SyncsUntold reports whether servers that lockbench starts write a grant
	// to disk before the reply, although the plugin does not report it.
	Synced      []string
	SyncsUntold bool
	// ExpiryStep is the interval at which the store ends expired leases; 0 if leases end on time.
	ExpiryStep time.Duration
	// Push is a text that occurs only in messages that the store's servers send to
	// waiters without a request; see [inject.Proxy]. It is "" if there is no such text.
	Push string
	// Floor is the cheapest call to the store's servers. Reports compare locks with this call.
	Floor *Floor
	// LeftKeys lists, for the server at addr, the keys of locks whose names begin with prefix. It
	// omits the few keys that exist once for each prefix and not for each lock.
	LeftKeys func(ctx context.Context, addr, prefix string) ([]string, error)

	// Foreign returns an instruction for operators. It says how to remove the lock of the given
	// name if a program other than our backend has created its key.
	Foreign func(prefix, name string) string
	// Operations are what an operator may do to the servers. Each operation names its settings.
	Operations []Operation
	// Staged are further operations. The random search for failures
	// omits them, because their effect lasts until the servers restart.
	Staged []Operation
	// Counter connects to the store's servers, to count their commands.
	Counter func(cfg driver.Config) (*Counter, error)
	// Program looks for the program of the store's servers.
	Program func() Program

	// Prepare starts the servers of the environment e. If it fails, the caller closes e.
	Prepare func(ctx context.Context, e *Environment, w Requirements) error
	// Launch starts servers for a measurement. If Launch is nil, Prepare starts them.
	// Durable is what a host must add to its configuration if the servers were launched durable.
	Launch  func(ctx context.Context, durable bool) (Nodes, error)
	Durable driver.Config
	// Services are the store's services in compose.yaml, in the order of their addresses.
	Services []string
	// Remove deletes all data of the backend whose names begin with prefix; see [Kind.Sweep].
	Remove func(ctx context.Context, cfg driver.Config, prefix string) error
	// Address makes one address for hosts. If it is nil, the servers' addresses are joined by commas.
	Address func(at []string) string
	// HostIn matches an address of this store. Its first group is the host:port in the address.
	HostIn *regexp.Regexp

	stranger *Stranger // starts the servers; nil for a known store
}

// Floor is a call that costs a server next to nothing.
type Floor struct {
	Name string // its name in results.txt
	Open func(cfg driver.Config) (call func(context.Context) error, end func() error, err error)
}

type Setting struct {
	Name    string
	Servers int
	// Elects reports whether the servers elect a leader among themselves.
	Elects bool
	// Sharded reports whether each server has only a part of the data. Such a server loses its data in
	// a crash, and lockbench cannot move its clock.
	Sharded bool
	// Balanced reports whether each host has a single proxy, which connects to the servers in turn.
	Balanced bool
	// Copied reports whether a replica repeats everything that the server does.
	// If the server started without its data, the replica could not go on.
	Copied bool
}

// OneSQLServer has the reasons why an environment of one SQL server lacks some capabilities.
var OneSQLServer = map[Capability]string{
	CapMinority: "one server has no minority",
	CapLeader:   "one server has no other to lead",
	CapVotes:    "one server has no majority",
	CapReplica:  "lockbench sets up no replica of a SQL server",
	CapSentinel: "lockbench sets up no replica of a SQL server",
	CapSlots:    "one server has all rows",
	CapEvict:    "a SQL server deletes no rows by itself",
}

// Several stores have these settings.
const (
	Plain       = "plain"   // the servers alone
	WithReplica = "replica" // a replica follows the server, and can replace it
)

// SurvivesCrash reports whether a grant survives a crash of the server's machine. The parameter
// durability is what the plugin reports. If ours is true, lockbench has started the server.
func (k *Kind) SurvivesCrash(durability string, ours bool) bool {
	for word := range strings.SplitSeq(durability, ", ") {
		if !slices.Contains(k.Synced, word) {
			return ours && k.SyncsUntold
		}
	}
	return true
}

// Known reports whether lockbench can start servers of this kind.
func (k *Kind) Known() bool { return k.Prepare != nil }

// InHost reports whether the store has no servers, but lives in the plugin process of one host.
func (k *Kind) InHost() bool { return k.Known() && !k.Has(CapShared) }

func (k *Kind) Has(p Capability) bool { return k.Known() && k.Lacks[p] == "" }

// Setting returns the setting with the given name, or an empty setting if there is none.
func (k *Kind) Setting(name string) Setting {
	for _, one := range k.Settings {
		if one.Name == name {
			return one
		}
	}
	return Setting{}
}

func (k *Kind) SettingNames() []string {
	var names []string
	for _, one := range k.Settings {
		names = append(names, one.Name)
	}
	return names
}

// config returns the configuration for servers at the given addresses, each a host:port.
func (k *Kind) config(at []string) driver.Config {
	switch {
	case len(at) == 0:
		return driver.Config{}
	case k.stranger != nil:
		return k.stranger.at(at[0])
	case k.Address == nil:
		return driver.Config{"address": strings.Join(at, ",")}
	}
	return driver.Config{"address": k.Address(at)}
}

// Capability is a feature that an environment may have and that a fault may need.
type Capability string

const (
	CapShared   Capability = "shared"   // several hosts use the store
	CapServers  Capability = "servers"  // lockbench runs servers, which hosts reach through proxies
	CapMinority Capability = "minority" // several servers, of which a majority decides
	CapLeader   Capability = "leader"   // one of the servers leads the others
	CapVotes    Capability = "votes"    // the servers vote, but not for a while after a restart
	CapKeeps    Capability = "keeps"    // data survive a crash of a server
	CapClock    Capability = "clock"    // the servers' clocks can be moved
	CapReplica  Capability = "replica"  // an asynchronous replica
	CapExhaust  Capability = "exhaust"  // the servers can be made to refuse connections
	CapSentinel Capability = "sentinel" // a service makes a replica take over when told to
	CapSlots    Capability = "slots"    // the data are spread over servers, and can be moved
	CapEvict    Capability = "evict"    // the servers can be made to delete keys when their memory is full
)

// Lacking returns a copy of the map others, in which each given capability has the reason in why.
func Lacking(others map[Capability]string, why string, capabilities ...Capability) map[Capability]string {
	out := maps.Clone(others)
	if out == nil {
		out = map[Capability]string{}
	}
	for _, p := range capabilities {
		out[p] = why
	}
	return out
}

// Sweep deletes, on the servers in the configuration cfg, all data whose names begin with prefix.
// It does nothing if the kind has no Remove or if prefix is empty.
func (k *Kind) Sweep(ctx context.Context, cfg driver.Config, prefix string) error {
	if k.Remove == nil || prefix == "" {
		return nil
	}
	if k.Remove(ctx, cfg, prefix) != nil {
		// The error omits the cause, which may quote an address with a password.
		return fmt.Errorf("%s: what begins with %q may be left on the server, which could not be asked: look, and remove it by hand", k.Name, prefix)
	}
	return nil
}

// Served is the work that a server has done since an unknown time in the past. A figure that the
// server does not report is NaN.
type Served struct {
	// Run counts all commands. Sent counts only the commands that clients sent, and not the commands
	// that scripts ran. For Redis, Sent is right only if clients send nothing but scripts,
	// subscriptions and pings. Plugins send hardly anything else.
	Run, Sent float64
	// Busy is the time in nanoseconds that the server has worked on the commands in Sent.
	Busy float64
}

// Since returns the work that the server has done since an earlier reading.
func (s Served) Since(before Served) Served {
	return Served{s.Run - before.Run, s.Sent - before.Sent, s.Busy - before.Busy}
}

// Counter reads the number of commands that a backend's servers have received, as the servers
// themselves count them. Only one goroutine may use a Counter.
//
// Redis counts commands, including those that scripts run (total_commands_processed of INFO). MySQL
// and MariaDB count statements (Questions). etcd counts the messages that it received, both
// requests and messages in streams (grpc_server_msg_received_total of its metrics). PostgreSQL has
// no Counter, because it reports its work up to ten seconds late. In runs with a simulated
// distance, the relay in front of PostgreSQL counts statements. The relay counts a pipeline of
// statements as one statement.
type Counter struct {
	Own   float64 // commands that one reading adds to the count of each node
	Reads float64 // number of readings, including the reading in progress
	Nodes []func(ctx context.Context) (Served, error)
	End   func() error // closes the counter's connections
}

// Read returns the average work per server. It omits the commands that the counter has sent.
func (c *Counter) Read(ctx context.Context) (Served, error) {
	c.Reads++
	var sum Served
	for _, node := range c.Nodes {
		s, err := node(ctx)
		if err != nil {
			return Served{}, err
		}
		sum = Served{sum.Run + s.Run, sum.Sent + s.Sent, sum.Busy + s.Busy}
	}
	n := float64(len(c.Nodes))
	return Served{sum.Run/n - c.Own*c.Reads, sum.Sent / n, sum.Busy / n}, nil
}

func (c *Counter) Close() error { return c.End() }

// Operation is what the operator of a store does to its servers, in daily work or an emergency.
type Operation struct {
	Name string // "demote"
	// Does describes the operation by a clause, such as "%s is
	// made the leader". The name of the server replaces "%s".
	Does string
	// Settings are the names of the settings in which the operation is possible. Empty means all.
	Settings []string
	// Server reports whether the operation concerns one server. If false, it concerns all servers.
	Server bool
	// Lasts is the shortest and the longest time from Do to Undo. It is zero if Undo is nil.
	Lasts [2]time.Duration
	// Stops is true if the operation can keep the store from serving hosts. If StopsFor is not zero,
	// this effect ends after StopsFor. StopsGrants is true if the operation can stop grants, but not
	// renewals. Recovers is the longest time that these effects last after the operation.
	Stops, StopsGrants bool
	StopsFor, Recovers time.Duration
	// Makes are the conditions that the operation causes. They permit the store to break some rules.
	Makes []claim.Condition

	// Do begins the operation, and Undo ends it. Undo is nil if there is nothing to undo.
	Do, Undo Step

	Forgets bool // the server forgets that it was admitted to vote
}

// Step acts on servers of the environment e. If the operation is on one server, that is server n.
type Step func(ctx context.Context, e *Environment, n int) error

// On returns a step that calls the function do with the environment's Product, which has type P.
func On[P Product](do func(ctx context.Context, servers P, n int) error) Step {
	return func(ctx context.Context, e *Environment, n int) error { return do(ctx, e.Product.(P), n) }
}

// InTurn returns a step that runs the given steps one after the other, even if one of them fails.
func InTurn(steps ...Step) Step {
	return func(ctx context.Context, e *Environment, n int) error {
		return inject.Each(steps, func(step Step) error { return step(ctx, e, n) })
	}
}

// OnEach returns a step that runs the given step on all servers at the same time.
func OnEach(step Step) Step {
	return func(ctx context.Context, e *Environment, _ int) error {
		return inject.AtOnce(len(e.Servers), func(n int) error { return step(ctx, e, n) })
	}
}

// ShiftClock makes the clock of server n show the true time plus d.
func (e *Environment) ShiftClock(n int, d time.Duration) error {
	if n >= len(e.Clocks) {
		return errors.New("the servers were started without clocks that can be moved")
	}
	e.Shifted = e.Shifted || d != 0
	return e.Clocks[n].Shift(d)
}

// FreezeMember freezes the server that stands the given number of places after the leader in
// e.Servers. The first server follows the last.
func (e *Environment) FreezeMember(ctx context.Context, after int) error {
	leader, err := e.Product.(interface {
		Leader(ctx context.Context) (int, error)
	}).Leader(ctx)
	if err != nil {
		return err
	}
	return e.Servers[(leader+after)%len(e.Servers)].Freeze()
}

// UntilLost is a range of durations that are long enough for leases to end without renewals.
var UntilLost = [2]time.Duration{2 * time.Second, 6 * time.Second}

// WhileWatched is the range of times for which an operator's temporary change usually lasts.
var WhileWatched = [2]time.Duration{50 * time.Millisecond, 5 * time.Second}
