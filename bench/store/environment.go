// Package store is what the bench knows of each store: how its servers are
// started, reached through paths that can be harmed, and what an operator does
// to them. One file for each store.
package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/bench/env"
	"github.com/lockbench/lockbench/bench/fault"
	"github.com/lockbench/lockbench/core/driver"
)

// patience is how long a server may take to do what it is told.
const patience = 5 * time.Second

// Environment is the servers of one backend, the paths to them, and what may be
// done to them. One goroutine uses it at a time.
type Environment struct {
	Scene   fault.Scene
	servers []*env.Server // all that have to be closed
	// Config is the backend's without its address, and address is that for
	// servers that are reached at the given host:port each.
	Config  driver.Config
	address func(at []string) string
	// admit lets servers that were started vote at once, where they would not.
	admit func(ctx context.Context) error
	// settle, unless it is nil, returns when another round can begin.
	settle func(ctx context.Context) error
	end    []func() error // further things to close
}

// builder makes the environments of one backend.
type builder struct {
	// lacks says for each power that its environment does not have why.
	lacks map[fault.Power]string
	start func(ctx context.Context, w Wish) (*Environment, error)
	// settings are the ways in which the servers can be set up; none for one.
	settings []string
	// operations are what an operator does to them.
	operations []Operation
}

// Wish is what an environment is to have.
type Wish struct {
	// Setting is one of [Settings] of the backend; "" for the first.
	Setting string
	Needs   []fault.Power
	// Many asks for several servers, where the backend can have several or one.
	Many   bool
	TTL    time.Duration // the longest of the leases
	Plugin string        // path of the binary
	Dir    string        // for temporary files
	// ClockLibrary moves the clocks of servers, see [fault.ClockLibrary]; ""
	// when nobody needs that.
	ClockLibrary string
}

func (w Wish) needs(p fault.Power) bool { return slices.Contains(w.Needs, p) }

// builders are those of the backends for which servers can be started. A
// backend that has none here is not judged.
var builders = map[string]builder{
	"memory": {start: startMemory, lacks: lacking("its store lives in one host process, which no other shares",
		fault.PowerRival, fault.PowerServers, fault.PowerPaths, fault.PowerMinority, fault.PowerLeader, fault.PowerKeeps,
		fault.PowerClock, fault.PowerReplica, fault.PowerReadOnly, fault.PowerExhaust, fault.PowerSentinel, fault.PowerSlots,
		fault.PowerEvict)},
	"redis": {start: startRedis, lacks: lacking("one server has no minority", fault.PowerMinority, fault.PowerLeader)},
	"redlock": {start: startRedlock, lacks: map[fault.Power]string{
		fault.PowerLeader:   "its nodes do not know each other",
		fault.PowerReplica:  "its nodes are independent masters: a replica of one is what the algorithm excludes",
		fault.PowerSentinel: "its nodes are independent masters: a replica of one is what the algorithm excludes",
		fault.PowerSlots:    "every node has all keys"}},
	"mysql": {start: startMySQL, lacks: map[fault.Power]string{
		fault.PowerMinority: "one server has no minority",
		fault.PowerLeader:   "one server has nobody to lead",
		fault.PowerReplica:  "lockbench sets up no replica of a SQL server",
		fault.PowerSentinel: "lockbench sets up no replica of a SQL server",
		fault.PowerSlots:    "one server has all rows",
		fault.PowerEvict:    "a SQL server deletes no rows by itself"}},
	"etcd": {start: startEtcd, lacks: map[fault.Power]string{
		fault.PowerClock:    "etcd asks the kernel for the time, where no library can move it",
		fault.PowerReplica:  "its members agree on every write: there is no asynchronous replica",
		fault.PowerSentinel: "its members elect a leader by themselves",
		fault.PowerSlots:    "every member has all keys",
		fault.PowerEvict:    "etcd deletes no keys by itself",
		fault.PowerExhaust:  "one connection carries all requests of a host, and etcd has no limit of them"}},
}

func lacking(why string, powers ...fault.Power) map[fault.Power]string {
	out := map[fault.Power]string{}
	for _, p := range powers {
		out[p] = why
	}
	return out
}

// Known reports whether servers can be started for a backend.
func Known(backend string) bool {
	_, ok := builders[backend]
	return ok
}

// Names are those of the backends for which servers can be started.
func Names() []string { return slices.Sorted(maps.Keys(builders)) }

// Lacks says for each power that the environment of a backend does not have why
// that is so.
func Lacks(backend string) map[fault.Power]string { return builders[backend].lacks }

// Settings are the ways in which the servers of a backend can be set up: at
// least one.
func Settings(backend string) []string {
	if s := builders[backend].settings; len(s) > 0 {
		return s
	}
	return []string{"plain"}
}

// Open starts the servers of a backend that is known. Errors of servers that are
// not installed wrap [env.ErrNotInstalled].
func Open(ctx context.Context, backend string, w Wish) (*Environment, error) {
	e, err := builders[backend].start(ctx, w)
	if err != nil {
		return nil, err
	}
	if w.needs(fault.PowerPaths) {
		if e.Scene.HolderPaths, err = e.AddPaths(); err == nil {
			e.Scene.RivalPaths, err = e.AddPaths()
		}
	}
	if err == nil && e.admit != nil {
		err = e.admit(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// AddPaths puts one proxy in front of each server, for one host. They are closed
// with the environment.
func (e *Environment) AddPaths() ([]*fault.Proxy, error) {
	var paths []*fault.Proxy
	for _, server := range e.Scene.Servers {
		p, err := fault.NewProxy(server.Addr())
		if err != nil {
			return nil, err
		}
		paths = append(paths, p)
		e.end = append(e.end, p.Close)
	}
	return paths, nil
}

// ConfigOf is the configuration of a host that uses the given paths, or none.
func (e *Environment) ConfigOf(paths []*fault.Proxy) driver.Config {
	cfg := driver.Config{}
	maps.Copy(cfg, e.Config)
	var at []string
	for i, server := range e.Scene.Servers {
		if len(paths) > 0 {
			at = append(at, paths[i].Addr())
			continue
		}
		at = append(at, server.Addr())
	}
	if e.address != nil {
		cfg["address"] = e.address(at)
	}
	return cfg
}

// add takes over servers that a fault may harm.
func (e *Environment) add(servers ...*env.Server) {
	e.servers = append(e.servers, servers...)
	for _, server := range servers {
		e.Scene.Servers = append(e.Scene.Servers, server)
	}
}

// Again brings the servers back to where they began, between rounds.
func (e *Environment) Again(ctx context.Context) error {
	err := e.rejoin(ctx)
	for _, c := range e.Scene.Clocks {
		err = errors.Join(err, c.Shift(0))
	}
	if e.settle != nil {
		err = errors.Join(err, e.settle(ctx))
	}
	return err
}

// Close ends what a fault does in the background, closes the paths, and ends the
// servers.
func (e *Environment) Close() error {
	errs := []error{e.Scene.Settle()}
	for _, end := range e.end {
		errs = append(errs, end())
	}
	for _, server := range e.servers {
		errs = append(errs, server.Close())
	}
	return errors.Join(errs...)
}

func byComma(at []string) string { return strings.Join(at, ",") }

func startMemory(context.Context, Wish) (*Environment, error) { return &Environment{}, nil }

// startClock makes the clock of one server and its wrapping command, for a
// fault that moves it.
func (e *Environment) startClock(w Wish) ([]string, error) {
	if w.ClockLibrary == "" {
		return nil, nil
	}
	c, err := fault.NewClock(w.ClockLibrary, w.Dir, fmt.Sprintf("clock-%d", len(e.Scene.Clocks)))
	if err != nil {
		return nil, err
	}
	e.Scene.Clocks = append(e.Scene.Clocks, c)
	return c.Wrap(), nil
}
