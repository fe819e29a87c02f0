package servers

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// Kind describes one kind of store, and how its servers are started. A zero
// field means that the store lacks the feature.
type Kind struct {
	Name string // name of its backend
	// Lacks has a reason for each capability that the store's environment does not have.
	Lacks map[Capability]string
	// Settings are the ways in which the store's servers can be set up, at least one way.
	Settings []Setting
	// Forgets reports whether a server that is not durable loses its data in a
	// restart, and no other server makes up for the loss.
	Forgets bool
	// Synced lists the words in Durability of driver.Properties that mean that a
	// grant is on disk before the reply. SyncsUntold reports whether servers that
	// lockbench starts write grants to disk in this way without reporting it.
	Synced      []string
	SyncsUntold bool
	// ExpiryStep is how late the store, by its design, may let a lease expire.
	ExpiryStep time.Duration
	// Push is a text that occurs only in messages that the store's servers send to
	// waiters unasked; see [inject.Proxy]. It is "" if there is no such text.
	Push string
	// Floor is the cheapest call to the store's servers.
	Floor *Floor
	// LeftKeys lists the keys of a prefix's locks on the server at addr. It
	// omits the few keys that a prefix has once for all its locks.
	LeftKeys func(ctx context.Context, addr, prefix string) ([]string, error)

	// Foreign returns a text that says how an operator removes a lock of the
	// prefix that no backend of ours has granted.
	Foreign func(prefix, name string) string
	// Operations are what an operator may do to the store's servers in every setting.
	Operations []Operation
	// Staged are operations that no search chooses, because they last until the servers restart.
	Staged []Operation
	// Counter connects to the store's servers, to count their commands.
	Counter func(cfg driver.Config) (*Counter, error)
	// Program looks for the program of the store's servers.
	Program func() Program

	// Prepare starts the servers of e. If Prepare fails, the caller closes e.
	Prepare func(ctx context.Context, e *Environment, w Requirements) error
	// Launch starts servers for a measurement. If it is nil, Prepare does so.
	// Durable is added to the configuration of durable servers.
	Launch  func(ctx context.Context, durable bool) (Nodes, error)
	Durable driver.Config
	// Services are the store's services in compose.yaml, in the order of their addresses.
	Services []string
	// Remove removes all data whose names begin with a prefix; see [Kind.Sweep].
	Remove func(ctx context.Context, cfg driver.Config, prefix string) error
	// Address joins the addresses of the store's servers. If it is nil, commas join them.
	Address func(at []string) string
	// HostIn finds host:port, as its first group, in an address that has more parts.
	HostIn *regexp.Regexp

	stranger *Stranger // starts the servers; nil for a known store
}

// Floor is a call for which servers do next to nothing.
type Floor struct {
	Name string // its name in results.txt
	Open func(cfg driver.Config) (call func(context.Context) error, end func() error, err error)
}

// Setting is a way in which servers can be set up.
type Setting struct {
	Name    string
	Servers int
	// Elects reports whether the servers elect a leader among themselves.
	Elects bool
	// Sharded reports whether each server has only a part of the data, loses it
	// in a crash, and has a clock that cannot be moved.
	Sharded bool
	// Copied reports whether a replica repeats all of the server's work, so
	// that the server cannot start again without its data.
	Copied bool
}

// OneSQLServer lists what an environment of one SQL server lacks.
var OneSQLServer = map[Capability]string{
	CapMinority: "one server has no minority",
	CapLeader:   "one server has no other to lead",
	CapVotes:    "one server has no majority",
	CapReplica:  "lockbench sets up no replica of a SQL server",
	CapSentinel: "lockbench sets up no replica of a SQL server",
	CapSlots:    "one server has all rows",
	CapEvict:    "a SQL server deletes no rows by itself",
}

// These settings are common to several stores.
const (
	Plain       = "plain"   // the servers alone
	WithReplica = "replica" // a replica follows the server, and can replace it
)

// SurvivesCrash reports whether a grant survives a crash of the server and its machine, given
// the durability that the server reports. ours says that lockbench started the server.
func (k *Kind) SurvivesCrash(durability string, ours bool) bool {
	for word := range strings.SplitSeq(durability, ", ") {
		if !slices.Contains(k.Synced, word) {
			return ours && k.SyncsUntold
		}
	}
	return true
}

// Known reports whether servers of this kind can be started.
func (k *Kind) Known() bool { return k.Prepare != nil }

// InHost reports whether the store lives in the plugin process of one host, without
// servers.
func (k *Kind) InHost() bool { return k.Known() && !k.Has(CapShared) }

// Has reports whether an environment of this kind has a capability.
func (k *Kind) Has(p Capability) bool { return k.Known() && k.Lacks[p] == "" }

// Setting returns the setting of that name, or an empty setting if there is none.
func (k *Kind) Setting(name string) Setting {
	for _, one := range k.Settings {
		if one.Name == name {
			return one
		}
	}
	return Setting{}
}

// SettingNames returns the names of Settings.
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

// Capability is a feature of an environment that a fault needs.
type Capability string

// These are the capabilities.
const (
	CapShared   Capability = "shared"   // several hosts use the store
	CapServers  Capability = "servers"  // lockbench runs servers, which hosts reach by paths
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

// Lacking returns a copy of others, with the reason why added for each of the capabilities.
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

// Sweep removes all data whose names begin with prefix from the servers of a
// configuration. It does nothing if the store has no Remove or the prefix is empty.
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
