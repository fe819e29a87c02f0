package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockbench/lockbench/bench/internal/baseline"
	"github.com/lockbench/lockbench/bench/internal/host"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
	"github.com/lockbench/lockbench/internal/servers/memory"
)

type session struct {
	plan        Plan
	log         *slog.Logger
	environment *environment
	started     []*servers.Environment
	relays      []*inject.Proxy // to the servers of subjects with an added RTT
	subjects    []*subject
	backends    []string
	baselines   []string
	skipped     []string
	counters    []*servers.Counter
	company     *core.Client // used to meet the other parts of the run; nil if there are none
	notes       []string
	findings    []string
	failures    failures
	binaries    map[string]string // paths, by the names that are recorded
	own         []described       // backends on the user's servers, each with a new prefix for lock names
}

const closeTimeout = 10 * time.Second

// openSession may return a session together with an error. The caller must close that session, too.
func openSession(ctx context.Context, p Plan, log *slog.Logger) (*session, error) {
	s := &session{plan: p, log: log, binaries: map[string]string{}}
	kept, err := readKept()
	if err != nil {
		return nil, Hinted(&EnvError{Err: err}, "lockbench env status")
	}
	if s.environment, err = openEnvironment(ctx, p.Env, kept); err != nil {
		return nil, err
	}
	s.plan.Env = s.environment.name
	return s, s.openAll(ctx)
}

func (s *session) openAll(ctx context.Context) error {
	backends, err := s.plan.describe(ctx)
	if err != nil {
		return err
	}
	for _, d := range backends {
		err := s.openBackend(ctx, d)
		var dead *EnvError
		if errors.As(err, &dead) && ctx.Err() == nil {
			// Go on, because the servers of the next backends may still work.
			s.failures.add(&subject{Subject: results.Subject{Name: d.Name, Kind: results.KindPlugin}}, "", 0, err)
			continue
		}
		if err != nil {
			return err
		}
	}
	if len(s.subjects) == 0 {
		return cmp.Or(s.failures.err(), s.nothing())
	}
	return s.openFloor(ctx)
}

func (s *session) nothing() error {
	return &EnvError{Err: fmt.Errorf("nothing to measure; left out: %s", strings.Join(s.skipped, "; "))}
}

// sweep removes what the run has written to the user's servers. If runs on several machines share
// the locks, none of these runs removes anything.
func (s *session) sweep(ctx context.Context) error {
	var errs []error
	for _, own := range s.own {
		prefixes := []string{own.config["prefix"]}
		if slices.ContainsFunc(s.baselines, func(name string) bool { bl, _ := baseline.ByName(name); return bl.Backend == own.Name }) {
			prefixes = append(prefixes, baseline.Prefix(own.Name))
		}
		for _, prefix := range prefixes {
			errs = append(errs, kinds.Of(own.Name).Sweep(ctx, own.config, prefix))
		}
	}
	return errors.Join(errs...)
}

// openBackend starts servers for one backend, unless the user named a target for it. If the servers
// cannot be started, openBackend fails if the user named backends, or else skips the backend.
func (s *session) openBackend(ctx context.Context, f described) error {
	var harm *servers.Server
	own := false
	if s.plan.strangers[f.Name] != nil || !s.plan.own[f.Name] && f.config["address"] == "" {
		started, err := s.environment.start(ctx, f.Found, s.plan.keepsData(f.Name))
		var e *EnvError
		if errors.As(err, &e) && len(s.plan.Backends) == 0 {
			s.skipped = append(s.skipped, fmt.Sprintf("%s: %v; %s", f.Name, e.Err, Hint(err)))
			return nil
		}
		if err != nil {
			return err
		}
		s.started = append(s.started, started)
		f.ours = true
		if n := len(started.Servers); n > 0 {
			// Faults hit only one server, because some servers take no part in grants for a while after a
			// restart. If three of five servers take no part, no host can become leader.
			harm = started.Servers[rand.IntN(n)]
		}
		maps.Copy(f.config, started.Config)
		if _, kept := s.environment.kept[f.Name]; kept {
			s.notes = append(s.notes, f.Name+" uses the server that lockbench env up keeps")
		}
	} else if s.plan.Parts == 0 {
		own = f.ownPrefix() != ""
	}
	s.backends = append(s.backends, f.Name)
	if f.note != "" {
		s.notes = append(s.notes, f.note)
	}
	s.binaries[filepath.Base(f.Path)] = f.Path
	distances := s.plan.RTT
	if len(distances) == 0 {
		distances = near
	}
	for i, rtt := range distances {
		if err := s.openAt(ctx, f, rtt, harm, own && i == 0); err != nil {
			return err
		}
	}
	return nil
}

// openAt opens a backend. If rtt is not 0, its connections go through relays that delay each round
// trip by rtt. If the backend cannot use relays, openAt skips it, and the report says so.
func (s *session) openAt(ctx context.Context, f described, rtt time.Duration, harm *servers.Server, own bool) (err error) {
	first := len(s.relays)
	if rtt > 0 {
		f.config, err = s.relayed(f.Name, f.config, rtt)
		if errors.Is(err, kinds.ErrNoRoute) {
			s.skipped = append(s.skipped, fmt.Sprintf("%s with its store %v away: %v", f.Name, rtt, err))
			return nil
		}
		if err != nil {
			return &EnvError{Backend: f.Name, Err: err}
		}
	}
	b, err := s.open(ctx, f)
	if own && (err == nil || ctx.Err() != nil) {
		s.own = append(s.own, f) // an interrupted check may already have written to the server
	}
	if err != nil {
		return err
	}
	sub := s.pluginSubject(b, f)
	sub.server, sub.rtt, sub.relays = harm, rtt, s.relays[first:]
	s.subjects = append(s.subjects, sub)
	s.openCounter(ctx, sub)
	if err := s.openOther(ctx, f, sub); err != nil {
		return err
	}
	return s.openBaselines(ctx, sub, f.config)
}

// relayed returns cfg with the addresses of new relays in place of the servers' addresses.
func (s *session) relayed(backend string, cfg driver.Config, rtt time.Duration) (driver.Config, error) {
	return kinds.Route(backend, cfg, func(address string) (string, error) {
		relay, err := inject.NewProxy(address)
		if err != nil {
			return "", err
		}
		relay.SetDistance(rtt)
		s.relays = append(s.relays, relay)
		return relay.Addr(), nil
	})
}

// openCounter opens a counter of the commands that sub's servers run, or records why it cannot.
func (s *session) openCounter(ctx context.Context, sub *subject) {
	open := kinds.Of(sub.Name).Counter
	if open == nil && len(sub.relays) > 0 {
		open = func(driver.Config) (*servers.Counter, error) { return relayCounter(sub.relays), nil }
	}
	if open == nil || !slices.Contains(s.plan.Scenarios, "contend") {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	counter, err := open(sub.host.Config)
	if err == nil {
		s.counters = append(s.counters, counter)
		_, err = counter.Read(ctx)
	}
	if err != nil {
		s.skipped = append(s.skipped, fmt.Sprintf("the commands of %s: %v", sub.Name, err))
		return
	}
	sub.counter = counter
}

// relayCounter counts commands for servers that have no counter. It counts one command whenever
// data from a client arrive at a relay.
func relayCounter(relays []*inject.Proxy) *servers.Counter {
	c := &servers.Counter{End: func() error { return nil }} // counting stops when the relays are closed
	for _, relay := range relays {
		var sent atomic.Int64
		relay.Observe(func(way inject.Direction) {
			if way == inject.Requests {
				sent.Add(1)
			}
		})
		c.Nodes = append(c.Nodes, func(context.Context) (servers.Served, error) {
			return servers.Served{Run: math.NaN(), Sent: float64(sent.Load()), Busy: math.NaN()}, nil
		})
	}
	return c
}

func (s *session) openBaselines(ctx context.Context, of *subject, cfg driver.Config) error {
	for _, name := range s.plan.Baselines {
		bl, ok := baseline.ByName(name)
		if !ok || bl.Backend != of.Name {
			continue
		}
		sub, err := s.baselineSubject(ctx, bl, cfg, of)
		if err != nil && ctx.Err() == nil {
			s.failures.add(&subject{Subject: results.Subject{Name: name, Kind: results.KindBaseline}}, "", 0, err)
			continue
		}
		if err != nil {
			return err
		}
		sub.counter, sub.rtt, sub.relays = of.counter, of.rtt, of.relays
		s.subjects = append(s.subjects, sub)
		if !slices.Contains(s.baselines, name) {
			s.baselines = append(s.baselines, name)
		}
	}
	floor := kinds.Of(of.Name).Floor
	if floor == nil {
		return nil
	}
	call, end, err := floor.Open(cfg)
	if err != nil {
		return &EnvError{Backend: floor.Name, Err: err}
	}
	s.subjects = append(s.subjects, &subject{
		Subject: results.Subject{Name: floor.Name, Kind: results.KindFloor},
		call:    call,
		close:   func(context.Context) error { return end() },
		host:    host.Spec{Config: cfg},
		rtt:     of.rtt,
	})
	return nil
}

// floorPluginCall names a call that does almost no work, to compare plugins with. It inspects a
// free lock through the memory plugin, and costs little more than a call between two processes.
const floorPluginCall = "plugin-call"

// openFloor makes floorPluginCall a subject if it finds the memory plugin, which needs no server.
func (s *session) openFloor(ctx context.Context) error {
	if !slices.ContainsFunc(plugin.Discover(s.plan.PluginDirs), func(f plugin.Found) bool { return f.Name == memory.Kind.Name }) {
		s.skipped = append(s.skipped, "floor "+floorPluginCall+": there is no "+memory.Kind.Name+" plugin")
		return nil
	}
	b, err := s.open(ctx, described{Found: plugin.Found{Name: memory.Kind.Name}})
	if err != nil {
		return err
	}
	s.subjects = append(s.subjects, &subject{
		Subject: results.Subject{Name: floorPluginCall, Kind: results.KindFloor},
		call: func(ctx context.Context) error {
			_, err := b.Inspect(ctx, "a free lock")
			return err
		},
		close: b.Close,
	})
	return nil
}

// Close waits at most closeTimeout for plugins and stores, even if ctx has ended.
func (s *session) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	errs := []error{inject.AtOnce(len(s.subjects), func(i int) error {
		sub := s.subjects[i]
		// A fault may have broken the connections of a baseline. So only an error of a plugin counts.
		if err := sub.close(ctx); err != nil && sub.Kind == results.KindPlugin {
			return fmt.Errorf("close %s: %w", sub.Name, err)
		}
		return nil
	})}
	for _, c := range s.counters {
		_ = c.Close()
	}
	if s.company != nil {
		errs = append(errs, s.company.Close(ctx))
	}
	errs = append(errs, s.sweep(ctx), inject.Each(s.relays, (*inject.Proxy).Close),
		inject.AtOnce(len(s.started), func(i int) error { return s.started[i].Close() }), s.environment.close())
	return errors.Join(errs...)
}

// openOther opens a plugin's second build. This process calls both builds, so only they differ.
func (s *session) openOther(ctx context.Context, d described, of *subject) error {
	if s.plan.VS == "" {
		return nil
	}
	d.Path = filepath.Join(s.plan.VS, filepath.Base(d.Path))
	b, err := s.open(ctx, d)
	if err != nil {
		return err
	}
	sub := s.pluginSubject(b, d)
	sub.Name, sub.BuildOf, sub.Reference = of.Name+results.OtherBuild, of.Name, of.Reference
	sub.series, sub.counter, sub.server, sub.rtt, sub.relays = 1, of.counter, of.server, of.rtt, of.relays
	s.subjects = append(s.subjects, sub)
	s.binaries[d.Name+results.OtherBuild] = d.Path
	return nil
}
