package safety

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

// stage is the environment of one cell: servers, paths to them, and what a
// fault may do to them. It lives for all rounds of the cell.
type stage struct {
	scene   fault.Scene
	servers []*env.Server // all that have to be closed
	// config is the backend's without its address, and address is that for
	// servers that are reached at the given host:port each.
	config  driver.Config
	address func(at []string) string
	// admit lets servers that were started vote at once, where they would not.
	admit func(ctx context.Context) error
	end   []func() error // further things to close
}

// builder makes the stages of one backend.
type builder struct {
	// lacks tells for each power that its environment does not have why.
	lacks map[fault.Power]string
	// start starts the servers for a fault.
	start func(ctx context.Context, w wish) (*stage, error)
}

// wish is what a cell wants of its stage.
type wish struct {
	fault  fault.Fault
	ttl    time.Duration
	plugin string // path of the binary
	dir    string // for temporary files
	// clockLibrary moves the clocks of servers; "" when nobody needs that.
	clockLibrary string
}

func (w wish) needs(p fault.Power) bool { return slices.Contains(w.fault.Needs, p) }

// builders are those of the backends for which servers can be started. A
// backend that has none here is not judged.
var builders = map[string]builder{
	"memory": {start: startMemory, lacks: lacking("its store lives in one host process, which no other shares",
		fault.PowerRival, fault.PowerServers, fault.PowerPaths, fault.PowerMinority, fault.PowerLeader, fault.PowerKeeps,
		fault.PowerClock, fault.PowerReplica, fault.PowerReadOnly, fault.PowerExhaust)},
	"redis": {start: startRedis, lacks: lacking("one server has no minority", fault.PowerMinority, fault.PowerLeader)},
	"redlock": {start: startRedlock, lacks: map[fault.Power]string{
		fault.PowerLeader:  "its nodes do not know each other",
		fault.PowerReplica: "its nodes are independent masters: a replica of one is what the algorithm excludes"}},
	"mysql": {start: startMySQL, lacks: map[fault.Power]string{
		fault.PowerMinority: "one server has no minority",
		fault.PowerLeader:   "one server has nobody to lead",
		fault.PowerReplica:  "lockbench sets up no replica of a SQL server"}},
	"etcd": {start: startEtcd, lacks: map[fault.Power]string{
		fault.PowerClock:   "etcd asks the kernel for the time, where no library can move it",
		fault.PowerReplica: "its members agree on every write: there is no asynchronous replica",
		fault.PowerExhaust: "one connection carries all requests of a host, and etcd has no limit of them"}},
}

func lacking(why string, powers ...fault.Power) map[fault.Power]string {
	out := map[fault.Power]string{}
	for _, p := range powers {
		out[p] = why
	}
	return out
}

// open starts the stage of a cell, with paths where its fault needs them.
func (b builder) open(ctx context.Context, w wish) (*stage, error) {
	s, err := b.start(ctx, w)
	if err != nil {
		return nil, err
	}
	if w.needs(fault.PowerPaths) {
		err = s.lay()
	}
	if err == nil && s.admit != nil {
		err = s.admit(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// lay puts one proxy between each host and each server.
func (s *stage) lay() error {
	for _, paths := range []*[]*fault.Proxy{&s.scene.HolderPaths, &s.scene.RivalPaths} {
		for _, server := range s.scene.Servers {
			p, err := fault.NewProxy(server.Addr())
			if err != nil {
				return err
			}
			*paths = append(*paths, p)
			s.end = append(s.end, p.Close)
		}
	}
	return nil
}

// configOf is the configuration of the host that uses the given paths.
func (s *stage) configOf(paths []*fault.Proxy, f fault.Fault) driver.Config {
	cfg := driver.Config{}
	maps.Copy(cfg, s.config)
	maps.Copy(cfg, f.Config)
	var at []string
	for i, server := range s.scene.Servers {
		if len(paths) > 0 {
			at = append(at, paths[i].Addr())
			continue
		}
		at = append(at, server.Addr())
	}
	if s.address != nil {
		cfg["address"] = s.address(at)
	}
	return cfg
}

// add takes over servers that a fault may harm.
func (s *stage) add(servers ...*env.Server) {
	s.servers = append(s.servers, servers...)
	for _, server := range servers {
		s.scene.Servers = append(s.scene.Servers, server)
	}
}

// again brings the servers back to where they began, between rounds.
func (s *stage) again(ctx context.Context) error {
	err := s.rejoin(ctx)
	for _, c := range s.scene.Clocks {
		err = errors.Join(err, c.Shift(0))
	}
	return err
}

func (s *stage) close() error {
	errs := []error{s.scene.Settle()}
	for _, end := range s.end {
		errs = append(errs, end())
	}
	for _, server := range s.servers {
		errs = append(errs, server.Close())
	}
	return errors.Join(errs...)
}

func byComma(at []string) string { return strings.Join(at, ",") }

func startMemory(context.Context, wish) (*stage, error) { return &stage{}, nil }

// startClock makes the clock of one server and its wrapping command, for a
// fault that moves it.
func (s *stage) startClock(w wish) ([]string, error) {
	if w.clockLibrary == "" {
		return nil, nil
	}
	c, err := fault.NewClock(w.clockLibrary, w.dir, fmt.Sprintf("clock-%d", len(s.scene.Clocks)))
	if err != nil {
		return nil, err
	}
	s.scene.Clocks = append(s.scene.Clocks, c)
	return c.Wrap(), nil
}
