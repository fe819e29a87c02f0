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

// patience is how long a server may take to do what it is told: a replica that
// has lost its master looks for it once a second, and copies everything.
const patience = 15 * time.Second

// healthTimeout bounds the question whether servers are healthy.
const healthTimeout = 2 * time.Second

// Environment is the servers of one backend, the paths to them, and what may be
// done to them. One goroutine uses it at a time.
type Environment struct {
	Scene   fault.Scene
	servers []*env.Server // all that have to be closed
	// Config is the backend's without its address, and address is that for
	// servers that are reached at the given host:port each.
	Config  driver.Config
	address func(at []string) string
	// product is what only this kind of server knows; nil for one that lives in
	// the hosts.
	product product
	paths   [][]*fault.Proxy // all that were added
	shifted bool             // a clock was moved
	user    string           // as which hosts log in
	// passwordFile is where hosts read their password; "" where they do not.
	passwordFile string
	// admit lets servers that were started vote at once, where they would not.
	admit func(ctx context.Context) error
	// settle, unless it is nil, returns when another round can begin.
	settle func(ctx context.Context) error
	end    []func() error // further things to close
}

// product is what is asked of the servers of one kind.
type product interface {
	healthy(ctx context.Context) error
	leftovers(ctx context.Context, prefix string) ([]string, error)
	connections(ctx context.Context) (int, error)
}

// builder makes the environments of one backend.
type builder struct {
	// lacks says for each power that its environment does not have why.
	lacks map[fault.Power]string
	start func(ctx context.Context, w Wish) (*Environment, error)
	// settings are the ways in which the servers can be set up; none for one.
	settings []string
	// servers are how many there are in a setting; none means one.
	servers map[string]int
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

// The settings.
const (
	Plain       = "plain"
	WithReplica = "replica" // a replica follows the server, and replaces it
	Cluster     = "cluster" // Redis Cluster, to whose nodes no paths lead
	One         = "one"
	Three       = "three"
)

// builders are those of the backends for which servers can be started. A
// backend that has none here is not judged.
var builders = map[string]builder{
	"memory": {start: startMemory, lacks: lacking("its store lives in one host process, which no other shares",
		fault.PowerRival, fault.PowerServers, fault.PowerPaths, fault.PowerMinority, fault.PowerLeader, fault.PowerKeeps,
		fault.PowerClock, fault.PowerReplica, fault.PowerReadOnly, fault.PowerExhaust, fault.PowerSentinel, fault.PowerSlots,
		fault.PowerEvict)},
	"redis": {
		start: startRedis, settings: []string{Plain, WithReplica, Cluster}, servers: map[string]int{Cluster: clusterNodes}, operations: redisOperations,
		lacks: lacking("one server has no minority", fault.PowerMinority, fault.PowerLeader)},
	"redlock": {start: startRedlock, operations: redlockOperations, servers: map[string]int{Plain: redlockNodes}, lacks: map[fault.Power]string{
		fault.PowerLeader:   "its nodes do not know each other",
		fault.PowerReplica:  "its nodes are independent masters: a replica of one is what the algorithm excludes",
		fault.PowerSentinel: "its nodes are independent masters: a replica of one is what the algorithm excludes",
		fault.PowerSlots:    "every node has all keys"}},
	"mysql": {start: startMySQL, operations: sqlOperations, lacks: map[fault.Power]string{
		fault.PowerMinority: "one server has no minority",
		fault.PowerLeader:   "one server has nobody to lead",
		fault.PowerReplica:  "lockbench sets up no replica of a SQL server",
		fault.PowerSentinel: "lockbench sets up no replica of a SQL server",
		fault.PowerSlots:    "one server has all rows",
		fault.PowerEvict:    "a SQL server deletes no rows by itself"}},
	"etcd": {start: startEtcd, settings: []string{One, Three}, servers: map[string]int{Three: etcdMembers}, operations: etcdOperations, lacks: map[fault.Power]string{
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
	return []string{Plain}
}

// Servers are how many servers a backend has in a setting.
func Servers(backend, setting string) int { return max(1, builders[backend].servers[setting]) }

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
	e.paths = append(e.paths, paths)
	return paths, nil
}

// lead lets the paths of all hosts that lead to server n end at addr.
func (e *Environment) lead(n int, addr string) error {
	var errs []error
	for _, paths := range e.paths {
		errs = append(errs, paths[n].Retarget(addr))
	}
	return errors.Join(errs...)
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
	for n := range e.Scene.Clocks {
		err = errors.Join(err, e.ShiftClock(n, 0))
	}
	if e.settle != nil {
		err = errors.Join(err, e.settle(ctx))
	}
	e.shifted = false
	return err
}

// ShiftClock makes the clock of server n differ from the true time by d.
func (e *Environment) ShiftClock(n int, d time.Duration) error {
	e.shifted = e.shifted || d != 0
	return e.Scene.Clocks[n].Shift(d)
}

// Healthy returns nil when the servers serve hosts, and are as they began: in
// their roles, with their settings and the right time. It asks each of them.
func (e *Environment) Healthy(ctx context.Context) error {
	if e.product == nil {
		return nil
	}
	if e.shifted {
		return errors.New("store: a clock was moved")
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	if err := e.product.healthy(ctx); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// Leftovers lists what is in the store of locks whose names begin with prefix:
// keys, or rows that somebody holds or waits for. What stays on purpose, as a
// counter of tokens does and the owners that were withdrawn, is not listed.
func (e *Environment) Leftovers(ctx context.Context, prefix string) ([]string, error) {
	if e.product == nil {
		return nil, nil
	}
	return e.product.leftovers(ctx, prefix)
}

// Connections counts those that hosts have to the servers.
func (e *Environment) Connections(ctx context.Context) (int, error) {
	if e.product == nil {
		return 0, nil
	}
	return e.product.connections(ctx)
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
