package bench

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/internal/check"
	"github.com/lockbench/lockbench/internal/fault"
	"github.com/lockbench/lockbench/internal/record"
	"github.com/lockbench/lockbench/internal/safety"
)

// SafetyScenario puts backends through faults. It has servers and a table of
// its own, so it is run alone.
const SafetyScenario = "safety"

// SafetyDoc is what it proves, in one line.
const SafetyDoc = "whether the locks are locks: one process holds 20 of them, another one wants them, and a fault is injected; run alone, on throwaway servers, TTL 2 s"

// The rounds of each cell of the safety scenario.
const (
	safetyRounds      = 3
	quickSafetyRounds = 1
)

// isSafety reports whether the plan is one of the safety scenario.
func (p Plan) isSafety() bool { return slices.Contains(p.Scenarios, SafetyScenario) }

// checkAlone finds what a scenario cannot do that judges plugins on servers of
// its own, which it harms.
func (p Plan) checkAlone(scenario string) error {
	switch {
	case len(p.Scenarios) > 1:
		return usagef("scenario %s has servers of its own and is run alone, not with %v", scenario, p.Scenarios)
	case len(p.Targets) > 0:
		return usagef("scenario %s harms its servers, so it takes none of yours", scenario)
	case p.Env != "" && p.Env != EnvLocal:
		return usagef("scenario %s harms local processes, so it has no environment %q", scenario, p.Env)
	case len(p.Baselines) > 0:
		return usagef("scenario %s judges plugins, not baselines", scenario)
	}
	return nil
}

// checkSafety finds what the safety scenario cannot do.
func (p Plan) checkSafety() error {
	if err := p.checkAlone(SafetyScenario); err != nil {
		return err
	}
	if p.Runs < 0 || p.Runs > 1000 {
		return usagef("%d runs are not between 1 and 1000", p.Runs)
	}
	for _, f := range p.Faults {
		if !slices.Contains(fault.Names(), f) {
			return unknown("fault", f, fault.Names())
		}
	}
	return nil
}

// faults are those that were asked for, in the order of the table.
func (p Plan) faults() []fault.Fault {
	chosen := p.Faults
	switch {
	case len(chosen) == 0 && p.Quick:
		chosen = safety.Quick
	case len(chosen) == 0:
		chosen = fault.Names()
	}
	return slices.DeleteFunc(fault.All(), func(f fault.Fault) bool { return !slices.Contains(chosen, f.Name) })
}

// runSafety carries out the safety scenario and writes its folder.
func runSafety(ctx context.Context, p Plan, opts Options) (Result, error) {
	plan := safety.Plan{Faults: p.faults(), Rounds: p.Runs, Seed: p.Seed}
	if plan.Rounds == 0 {
		plan.Rounds = safetyRounds
		if p.Quick {
			plan.Rounds = quickSafetyRounds
		}
	}
	p.Runs, p.TTL, p.Env = plan.Rounds, safety.TTL, EnvLocal
	var m record.Manifest
	var err error
	if plan.Backends, m, err = p.judged(ctx, nil); err != nil {
		return Result{}, err
	}
	return recordSafety(ctx, p, plan, m, opts)
}

// judged describes a run that judges plugins on servers of its own: the plugins
// that it concerns, and the manifest.
func (p Plan) judged(ctx context.Context, concerns func(name string) bool) (backends []safety.Backend, m record.Manifest, err error) {
	found, err := FindPlugins(p)
	if err != nil {
		return nil, m, err
	}
	described, err := p.describe(ctx, found)
	if err != nil {
		return nil, m, err
	}
	p.Env = EnvLocal
	m = record.Manifest{Lockbench: p.Version, Machine: machine()}
	var names []string
	binaries := map[string]string{}
	for _, d := range described {
		if concerns != nil && !concerns(d.Name) {
			continue
		}
		claims := d.says.Properties
		names, binaries[filepath.Base(d.Path)] = append(names, d.Name), d.Path
		backends = append(backends, safety.Backend{
			Name: d.Name, Path: d.Path, Fencing: string(claims.Fencing), Config: d.config, NoMTLS: !p.MTLS,
		})
		m.Subjects = append(m.Subjects, record.Subject{
			Name: d.Name, Kind: record.KindPlugin, Version: d.says.Version, Fencing: string(claims.Fencing), Scope: string(claims.Scope),
		})
	}
	m.Plan = p.recorded(names, nil)
	m.Binaries, err = checksums(binaries)
	return backends, m, err
}

// recordSafety runs the plan into a folder and judges what it holds.
func recordSafety(ctx context.Context, p Plan, plan safety.Plan, m record.Manifest, opts Options) (Result, error) {
	sink := &safetySink{progress: opts.Progress, log: opts.Log}
	_, err := fillFolder(ctx, p.Out, m, func(folder *record.Folder) error {
		sink.folder = folder
		cells, runnable := plan.Cells()
		sink.progress.Begin(cells, time.Duration(runnable)*(safetySetup+time.Duration(plan.Rounds)*safetyRound))
		defer sink.progress.End()
		if err := safety.Run(ctx, plan, sink); ctx.Err() == nil {
			return err
		}
		return nil // what was broken off has not failed
	})
	res := Result{Cells: sink.rounds, Interrupted: ctx.Err() != nil}
	if err != nil {
		return res, err
	}
	if res.Verdict, err = check.Dir(p.Out); err == nil && res.Cells == 0 && !res.Interrupted {
		err = &EnvError{Err: fmt.Errorf("none of these faults can be run here: %s", strings.Join(sink.missing, "; "))}
	}
	return res, err
}

// fillFolder makes a folder, has work fill it, and closes it with what the machine
// was busy with meanwhile.
func fillFolder(ctx context.Context, dir string, m record.Manifest, work func(*record.Folder) error) (record.Manifest, error) {
	began := time.Now()
	m.Started = began.UTC()
	folder, err := record.Create(dir, m)
	if err != nil {
		return m, err
	}
	watched := watch()
	err = work(folder)
	m = folder.Manifest()
	m.Elapsed = time.Since(began).Seconds()
	watched(&m)
	return m, closeFolder(folder, m, err == nil && ctx.Err() != nil, err)
}

// About how long one round takes, and the servers of a cell.
const (
	safetyRound = 5 * time.Second
	safetySetup = 3 * time.Second
)

// safetySink writes rounds into a folder.
type safetySink struct {
	folder   *record.Folder
	progress Progress
	log      *slog.Logger
	rounds   int // that were run
	missing  []string
}

// Begin implements safety.Sink.
func (s *safetySink) Begin(label string) { s.progress.Step(label) }

// Round implements safety.Sink.
func (s *safetySink) Round(r record.Round) error {
	if r.Missing == "" {
		s.rounds++
	} else {
		s.missing = append(s.missing, fmt.Sprintf("%s under %s: %s", r.Backend, r.Fault, r.Missing))
	}
	if r.Failure != "" {
		s.log.Warn("round failed", "backend", r.Backend, "fault", r.Fault, "round", r.Round, "failure", r.Failure)
	}
	if err := s.folder.AddRound(r); err != nil {
		return fmt.Errorf("record a round: %w", err)
	}
	return nil
}
