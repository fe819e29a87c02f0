// Package store is what the bench knows of each kind of store: how its servers
// are started, reached through paths that can be harmed, counted and asked, and
// what an operator does to them. One file describes each, and nothing else in
// the bench names one, but for claims and baselines.
package store

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/env"
	"github.com/lockbench/lockbench/internal/fault"
)

// Store is one kind of store. What is zero of it, it does not have.
type Store struct {
	Name string // of its backend
	// Lacks says for each capability that its environment does not have why that is so.
	Lacks map[fault.Capability]string
	// Settings are the ways in which its servers can be set up: at least one.
	Settings []Setting
	// Forgets reports whether a server that was not started as a durable one has
	// nothing to make up for what it has lost when it is started again.
	Forgets bool
	// ExpiryStep is how late it may let a lease expire by its design.
	ExpiryStep time.Duration
	// Floor is the cheapest call to its servers.
	Floor *Floor
	// Guard is for things that are kept in it.
	Guard *Guard
	// LeftKeys lists what the server at addr has of the locks of a prefix, besides
	// what a prefix needs however many locks it has seen.
	LeftKeys func(ctx context.Context, addr, prefix string) ([]string, error)

	// foreign says how to remove a lock that no backend of ours has granted; see
	// [Store.Foreign].
	foreign func(prefix, name string) string
	// sweep removes what begins with a prefix; see [Store.Sweep].
	sweep func(ctx context.Context, cfg driver.Config, prefix string) error
	// open starts the servers of e, which is closed after an error.
	open       func(ctx context.Context, e *Environment, w Requirements) error
	operations []Operation
	// start starts servers to be measured, which find durable added to their
	// configuration when they are durable ones.
	start   func(ctx context.Context, durable bool) (env.Nodes, error)
	durable driver.Config
	// admit lets servers vote at once that would not; config has lines for the
	// plugin.
	admit func(ctx context.Context, plugin string, config ...string) error
	// services are those of compose.yaml, in the order of their addresses.
	services []string
	// address joins the addresses of its servers; nil does so by commas.
	address func(at []string) string
	// scheme may stand before an address, and hostIn finds host and port, as its
	// first group, in one that is not a list of them.
	scheme  string
	hostIn  *regexp.Regexp
	counter func(cfg driver.Config) (*Counter, error)
	program func() env.Program
}

// Floor is a call to servers that does next to nothing.
type Floor struct {
	Name string // in results.txt
	Open func(cfg driver.Config) (call func(context.Context) error, end func() error, err error)
}

// Guard is what refuses writes with an old token to things that are kept in a
// store.
type Guard struct {
	Kind string // of the things, in what is recorded
	// Start starts a server for them.
	Start func(ctx context.Context) (*env.Server, error)
	// Open connects to that, at host:port.
	Open func(addr string) (*Guarded, error)
}

// Guarded writes to things. Both kinds of writes return an error wrapping
// fence.ErrStale when a guard refuses.
type Guarded struct {
	Write, WriteBare func(ctx context.Context, thing string, token uint64) error
	Close            func() error
}

// Setting is a way in which servers can be set up.
type Setting struct {
	Name    string
	Servers int
	// Elects reports whether the servers elect one of them, which leads.
	Elects bool
	// Sharded reports whether each server has a part of the data, which it does not
	// keep over a crash, and a clock that cannot be moved.
	Sharded bool
	// Copied reports whether a replica does what the server has done since the
	// beginning, so that the server cannot begin anew.
	Copied bool
}

// Plain is the setting of a store that has no other.
const Plain = "plain"

// All are those that are known, in the order in which they are shown.
func All() []*Store { return []*Store{redisKind, redlockKind, mysqlKind, etcdKind, memoryKind} }

// Names are theirs, sorted.
func Names() []string {
	var names []string
	for _, s := range All() {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return names
}

// Of is the store of a backend. Of one that is not known nothing is known but the
// name.
func Of(backend string) *Store {
	for _, s := range All() {
		if s.Name == backend {
			return s
		}
	}
	return &Store{Name: backend}
}

// Known reports whether servers can be started for a backend.
func Known(backend string) bool { return Of(backend).open != nil }

// Foreign says how an operator removes a lock of the prefix that no backend of ours
// has granted, "" when that is not known.
func (s *Store) Foreign(prefix, name string) string {
	if s.foreign == nil {
		return ""
	}
	return s.foreign(prefix, name)
}

// InHost reports whether it lives in the plugin process of one host, and has no
// servers.
func (s *Store) InHost() bool { return Known(s.Name) && s.start == nil }

// Has reports whether its environment has a capability.
func (s *Store) Has(p fault.Capability) bool { return Known(s.Name) && s.Lacks[p] == "" }

// Concerns reports whether a fault has anything to do with the store: one that is
// made for those with a capability has not with the others.
func (s *Store) Concerns(f fault.Fault) bool { return f.OnlyFor == "" || s.Has(f.OnlyFor) }

// Fits says why a fault cannot be shown on the store, "" when it can.
func (s *Store) Fits(f fault.Fault) string {
	if !s.Concerns(f) {
		var names []string
		for _, other := range All() {
			if other.Concerns(f) {
				names = append(names, other.Name)
			}
		}
		return fmt.Sprintf("it is made for %v", names)
	}
	return f.Fits(s.Lacks)
}

// Setting is one of Settings, without servers when there is none of that name.
func (s *Store) Setting(name string) Setting {
	for _, one := range s.Settings {
		if one.Name == name {
			return one
		}
	}
	return Setting{}
}

// SettingNames are those of Settings.
func (s *Store) SettingNames() []string {
	var names []string
	for _, one := range s.Settings {
		names = append(names, one.Name)
	}
	return names
}

// Operations are what an operator does to its servers, whatever the setting.
func (s *Store) Operations() []Operation {
	all := slices.Clone(s.operations)
	for i := range all {
		all[i].Name = s.Name + "-" + all[i].Name
	}
	return all
}

// config is the configuration for servers that are reached at the given host:port
// each.
func (s *Store) config(at []string) driver.Config {
	switch {
	case len(at) == 0:
		return driver.Config{}
	case s.address == nil:
		return driver.Config{"address": byComma(at)}
	}
	return driver.Config{"address": s.address(at)}
}

func byComma(at []string) string { return strings.Join(at, ",") }

// lacking gives several capabilities one reason, besides those that have another.
func lacking(others map[fault.Capability]string, why string, capabilities ...fault.Capability) map[fault.Capability]string {
	out := maps.Clone(others)
	if out == nil {
		out = map[fault.Capability]string{}
	}
	for _, p := range capabilities {
		out[p] = why
	}
	return out
}

// Programs looks for all that local servers and containers are made of.
func Programs(ctx context.Context) []env.Program {
	var all []env.Program
	for _, s := range All() {
		if s.program == nil {
			continue
		}
		p := s.program()
		if i := slices.IndexFunc(all, func(other env.Program) bool { return other.Name == p.Name }); i >= 0 {
			all[i].For += ", " + s.Name
			continue
		}
		p.For = s.Name
		all = append(all, p)
	}
	all = append(all, env.ContainerPrograms()...)
	for i := range all {
		all[i].AskVersion(ctx)
	}
	return all
}
