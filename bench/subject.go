package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/bench/internal/baseline"
	"github.com/lockbench/lockbench/bench/internal/host"
	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

const (
	// startTimeout is the longest time that a plugin may take to start on a busy machine.
	startTimeout = 30 * time.Second
	// openTimeout is the longest time that a backend may take to answer after its plugin has started.
	// It is below 5 s, because lockbench must report within 5 s that a server is down.
	openTimeout = 4 * time.Second
)

// subject is what a run measures: a plugin, a baseline (a library), or a floor (a cheap call).
type subject struct {
	results.Subject
	locker load.Locker                     // nil for a floor
	call   func(ctx context.Context) error // the call that a floor measures; nil for other subjects
	check  func(ctx context.Context) error // checks that the store answers; nil for a floor
	close  func(ctx context.Context) error
	names  []string // lock names, made as they are needed
	series int64    // keeps the names of two builds apart
	// counter counts the commands that the subject's servers run. It is nil if none can be counted.
	counter *servers.Counter
	rtt     time.Duration   // added to each round trip to its store
	relays  []*inject.Proxy // the relays that its connections pass through
	host    host.Spec       // for starting host processes; a floor has only Config
	ttl     time.Duration
	server  *servers.Server // the server that faults may hit; nil for none
}

// commands returns a function that reads the subject's counter, or nil if there is no counter. For
// a baseline, the figures Sent and Busy would be wrong, so the function sets them to NaN.
func (s *subject) commands() func(ctx context.Context) (servers.Served, error) {
	if s.counter == nil {
		return nil
	}
	if s.Kind == results.KindPlugin {
		return s.counter.Read
	}
	return func(ctx context.Context) (servers.Served, error) {
		served, err := s.counter.Read(ctx)
		served.Sent, served.Busy = math.NaN(), math.NaN()
		return served, err
	}
}

// open opens a backend through its plugin, and checks that the store answers.
func (s *session) open(ctx context.Context, d described) (driver.Backend, error) {
	b, err := plugin.Open(ctx, d.Name, &plugin.Options{
		Path: d.Path, Config: d.config, Dirs: s.plan.PluginDirs, NoMTLS: s.plan.noMTLS(), Logger: s.log, StartTimeout: startTimeout,
	})
	if err != nil {
		return nil, &EnvError{Backend: d.Name, Err: at(d.config["address"], err)}
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := b.Check(ctx); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openTimeout)
		defer cancel()
		return nil, errors.Join(&EnvError{Backend: d.Name, Err: at(d.config["address"], err)}, b.Close(ctx))
	}
	return b, nil
}

// dead returns an error that says that the subject's store, or its plugin, cannot be used.
func (s *subject) dead(err error) error {
	return &EnvError{Backend: s.Name, Err: at(s.host.Config["address"], err)}
}

// The at function adds the server's address to the text of err, unless the text already has it.
func at(server string, err error) error {
	addr := shownAddress(server)
	if addr == "" || strings.Contains(err.Error(), addr) {
		return err
	}
	return fmt.Errorf("%s: %w", addr, err)
}

// pluginSubject returns a subject for the backend b. Closing the subject closes b.
func (s *session) pluginSubject(b driver.Backend, d described) *subject {
	p := b.Properties()
	locker := load.NewCore(b, &core.Options{Logger: s.log})
	return &subject{
		Subject: results.Subject{
			Name: p.Name, Kind: results.KindPlugin, Version: d.says.Version, Server: p.Server,
			Durability: p.Durability, Fencing: string(p.Fencing), Scope: string(p.Scope),
			SurvivesCrash: new(kinds.Of(d.Name).SurvivesCrash(p.Durability, d.ours)), Reference: s.reference(p.Name),
		},
		locker: locker,
		check:  b.Check,
		close:  locker.Close,
		host:   host.Spec{Backend: d.Name, Path: d.Path, Config: d.config, NoMTLS: s.plan.noMTLS()},
		ttl:    d.ttl,
	}
}

func (s *session) reference(backend string) string {
	if ref := baseline.Reference(backend); slices.Contains(s.plan.Baselines, ref) {
		return ref
	}
	return ""
}

// baselineSubject opens the baseline bl. The of parameter is the subject of the baseline's backend.
func (s *session) baselineSubject(ctx context.Context, bl baseline.Baseline, cfg driver.Config, of *subject) (*subject, error) {
	locker, err := bl.Open(ctx, cfg)
	if err != nil {
		return nil, &EnvError{Backend: bl.Name, Err: err}
	}
	fencing := of.Fencing
	if bl.NoTokens {
		fencing = "none"
	}
	return &subject{
		Subject: results.Subject{
			Name: bl.Name, Kind: results.KindBaseline, Version: moduleVersion(bl.Module), Server: of.Server,
			Durability: of.Durability, Fencing: fencing, Scope: of.Scope, Without: bl.Without(), Reference: of.Reference,
		},
		locker: locker,
		check:  of.check,
		close:  locker.Close,
		host:   host.Spec{Backend: of.Name, Config: cfg, Baseline: bl.Name},
		ttl:    of.ttl,
		server: of.server,
	}, nil
}
