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

// downTimeout limits the wait for a store's answer after a measurement on that store has failed.
// Without an answer, the run skips the next measurement on that store.
const downTimeout = time.Second

// failures lists the failed measurements (cells) of a run, which have no figures. If one subject (a
// backend or a baseline) fails, the run goes on with other subjects. The zero value can be used.
type failures struct {
	cells []results.FailedCell
	of    []failure        // of[i] is the failure of cells[i]
	last  map[string]error // by subject: the error of its last cell, if that cell failed
}

type failure struct {
	kind results.Kind
	err  error
}

// add records that the subject sub has no figures for the measurement called label in this run. An
// empty label means that no measurement of that subject has figures.
func (f *failures) add(sub *subject, label string, run int, err error) {
	if f.last == nil {
		f.last = map[string]error{}
	}
	f.last[sub.Name] = err
	f.cells = append(f.cells, results.FailedCell{Backend: sub.Name, Cell: label, Run: run, Reason: oneLine(err)})
	if label != "" {
		err = fmt.Errorf("%s, run %d: %w", label, run, err)
	}
	f.of = append(f.of, failure{sub.Kind, err})
}

func (f *failures) served(sub *subject) { delete(f.last, sub.Name) }

// down returns an error if the last measurement of the subject sub failed and the subject's store
// still does not answer. Without this check, callers would wait for that store in each measurement.
func (f *failures) down(ctx context.Context, sub *subject) error {
	if f.last[sub.Name] == nil || sub.check == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	if err := sub.check(ctx); err != nil {
		return sub.dead(fmt.Errorf("not tried, as its store still does not answer: %w", err))
	}
	return nil
}

// hopeless reports whether the last measurement of every plugin failed with an EnvError, which says
// that the server or the plugin cannot be used.
func (f *failures) hopeless(subjects []*subject) bool {
	for _, sub := range subjects {
		var dead *EnvError
		if sub.Kind == results.KindPlugin && !errors.As(f.last[sub.Name], &dead) {
			return false
		}
	}
	return true
}

// sums returns one error for each subject with failed measurements. If baselines is true, it covers
// only baselines. If baselines is false, it covers only other subjects.
func (f *failures) sums(baselines bool) (sums []error) {
	count := map[string]int{}
	for _, c := range f.cells {
		count[c.Backend]++
	}
	for i, c := range f.cells {
		n, err := count[c.Backend], f.of[i].err
		delete(count, c.Backend) // the error of the first cell represents all cells of the subject
		switch {
		case n == 0 || baselines != (f.of[i].kind == results.KindBaseline):
			continue
		case c.Cell == "": // err names the subject
		case n == 1:
			err = fmt.Errorf("%s: %w", c.Backend, err)
		default:
			err = fmt.Errorf("%s: %d cells failed, the first: %w", c.Backend, n, err)
		}
		sums = append(sums, err)
	}
	return sums
}

// err returns the error that makes the run fail. It is nil if no measurement failed, or if only
// measurements of baselines failed.
func (f *failures) err() error { return errors.Join(f.sums(false)...) }

// besides returns one line for each failed baseline. The report shows these lines, but they do not
// make the run fail.
func (f *failures) besides() (lines []string) {
	for _, err := range f.sums(true) {
		lines = append(lines, oneLine(err))
	}
	return lines
}
