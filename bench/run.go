package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/bench/internal/command"
	"github.com/lockbench/lockbench/bench/internal/faults"
	"github.com/lockbench/lockbench/bench/internal/host"
	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/bench/internal/measure"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/proc"
)

// Progress shows the progress of a run to the user. Only one goroutine calls its methods.
type Progress interface {
	// Begin is called once. Parameter guess is the expected total time.
	Begin(steps int, guess time.Duration)
	// Step is called before each step.
	Step(label string)
	// End is called once after Begin, whether the run succeeded or not.
	End()
}

// Options are settings that do not change what is measured.
type Options struct {
	Progress Progress
	// Log gets the log lines of package core and of the plugins.
	Log *slog.Logger
	// Lines gets text for the user, such as notes. FaultsSearch, FaultsReplay and
	// FaultsSoak report progress to Lines, not to Progress, and report every step if Verbose is set.
	Lines   io.Writer
	Verbose bool
}

// Main must be the first call in function main. In a helper process that lockbench started, such as
// a host, Main does the work of that process. In any other process, Main returns at once.
func Main() {
	host.Main()
	command.Main()
	plugintest.HostMain()
}

// Run carries out a plan and writes its result folder. If ctx ends early, the folder keeps all that
// was measured until then. If nothing was measured, the Outcome is nil. The error wraps [ErrUnsafe]
// if the run found a violation.
func Run(ctx context.Context, p Plan, opts Options) (*Outcome, error) {
	p = p.filled()
	p.starts = true
	if err := cmp.Or(p.read(opts.Lines, p.Backends...), p.Check(), p.meetAll(ctx), chooseFolder(&p.Out)); err != nil {
		return nil, err
	}
	if p.Parts > 0 {
		fmt.Fprintf(opts.Lines, "one of %d parts; waits for the others on %s\n", p.Parts, p.Backends[0])
	}
	res, err := carryOut(ctx, p, opts)
	return res.outcome(ctx, err)
}

func carryOut(ctx context.Context, p Plan, opts Options) (res result, err error) {
	s, err := openSession(ctx, p, opts.Log)
	if s != nil {
		defer func() { res.closing = s.Close(ctx) }()
	}
	if err != nil {
		return result{}, err
	}
	r := &runner{session: s, clock: proc.NewClock(), progress: opts.Progress, checker: check.New()}
	return r.run(ctx)
}

type runner struct {
	*session
	clock      proc.Clock
	progress   Progress
	checker    *check.Checker
	folder     *results.Folder
	measured   int         // number of measured cells, in all runs
	rendezvous *rendezvous // nil if this run measures alone
}

func (r *runner) run(ctx context.Context) (res result, err error) {
	cells := r.cells()
	if len(cells) == 0 {
		return result{}, r.nothing()
	}
	if err := r.join(ctx); err != nil {
		return result{}, err
	}
	if r.plan.Stress {
		end, failed := faults.Stress(ctx)
		defer func() { err = errors.Join(err, end()) }()
		if failed != nil {
			return result{}, failed
		}
		r.notes = append(r.notes, "under --stress: "+faults.StressDoes)
	}
	m, err := r.manifest()
	if err != nil {
		return result{}, err
	}
	res = result{dir: r.plan.Out}
	_, err = fillFolder(ctx, r.plan.Out, m, func(folder *results.Folder, m *results.Manifest) error {
		r.folder = folder
		err := r.rounds(ctx, cells)
		if err == nil {
			// Another part (run on another machine) may still wait for this part. Ignore the error, because
			// all cells have been measured.
			_ = r.rendezvous.next(ctx, true)
		}
		res.verdict, res.cells, res.interrupted = r.checker.Verdict(), r.measured, ctx.Err() != nil
		m.Findings, m.Failed, m.Skipped = r.findings, r.failures.cells, append(r.skipped, r.failures.besides()...)
		return err
	})
	return res, err
}

// fillFolder creates a result folder, and calls the function work to fill the folder and its
// manifest. If ctx ends early, an error of work does not count as a failure.
func fillFolder(ctx context.Context, dir string, m results.Manifest, work func(*results.Folder, *results.Manifest) error) (results.Manifest, error) {
	if m.Started.IsZero() {
		m.Started = time.Now().UTC()
	}
	m.Lockbench, m.Machine = Version(), machine()
	folder, err := results.Create(dir, m)
	if err != nil {
		return m, err
	}
	watched := watch()
	m = folder.Manifest()
	err = work(folder, &m)
	m.Elapsed = time.Since(m.Started).Seconds()
	watched(&m)
	state := results.StateDone
	switch {
	case ctx.Err() != nil:
		state, err = results.StateInterrupted, nil
	case err != nil:
		state, m.Failure = results.StateFailed, err.Error()
	}
	return m, errors.Join(err, folder.SetManifest(m), folder.Close(state))
}

func (r *runner) rounds(ctx context.Context, cells []cell) error {
	order := rounds(cells, r.plan.Runs, r.plan.Seed)
	steps, guess := 0, time.Duration(0)
	for run := range order {
		steps += len(order[run])
		for _, c := range order[run] {
			guess += r.takes(c)
		}
	}
	r.progress.Begin(steps, guess)
	defer r.progress.End()
	for run, round := range order {
		for _, c := range round {
			r.progress.Step(fmt.Sprintf("run %d/%d: %s, %s", run+1, r.plan.Runs, c.subject.Name, c.label()))
			if err := errors.Join(r.cell(ctx, c, run+1), ctx.Err()); err != nil {
				return err
			}
			if r.failures.hopeless(r.subjects) {
				return r.failures.err()
			}
		}
	}
	return r.failures.err()
}

// cells returns the measurable cells, and adds to r.skipped why a cell cannot be measured.
func (r *runner) cells() []cell {
	var out []cell
	for _, sub := range r.subjects {
		for _, name := range r.plan.Scenarios {
			sc, _ := measure.ByName(name) // Check has refused unknown scenarios
			switch {
			case sub.call == nil:
				out = append(out, r.cellsOf(sub, sc)...)
			case name == "acquire":
				out = append(out, r.cellsOf(sub, measure.Floor(sub.call))...)
			}
		}
	}
	return out
}

func (r *runner) cellsOf(sub *subject, sc measure.Scenario) []cell {
	var out []cell
	if sc.PluginsOnly && sub.Kind != results.KindPlugin {
		return nil
	}
	for _, workload := range sc.Workloads(r.plan.asked()) {
		why := ""
		if sc.Processes || workload.Hosts > 0 {
			why = r.notPossible(sub, sc, workload)
		}
		if workload.RTT = sub.rtt; why == "" {
			out = append(out, cell{subject: sub, scenario: sc, Workload: workload})
		} else if line := fmt.Sprintf("%s in scenario %s", why, sc.Name); !slices.Contains(r.skipped, line) {
			r.skipped = append(r.skipped, line)
		}
	}
	return out
}

// cell measures one cell in one run. An error of this method ends the whole run.
func (r *runner) cell(ctx context.Context, c cell, run int) error {
	runtime.GC() // collects the garbage of the previous cell before the measured time
	in := r.input(c, run)
	if err := r.rendezvous.next(ctx, false); err != nil {
		return err
	}
	met := r.clock.Now()
	measured, err := results.Cell{}, r.failures.down(ctx, c.subject)
	if err == nil {
		measured, err = c.scenario.Run(ctx, in)
	}
	interrupted := ctx.Err() != nil
	measured.Section = c.section()
	measured.Run, measured.Names, measured.MetNs, measured.Interrupted = run, in.Names, met, interrupted
	for _, f := range measured.Findings {
		r.findings = append(r.findings, fmt.Sprintf("%s in %s: %s", c.subject.Name, cmp.Or(c.Mode, c.scenario.Name), f))
	}
	// Compare total times, because no figure shows a stall outside the measured time.
	planned, took := r.takes(c), time.Duration(r.clock.Now()-met)
	if took-planned > max(3*time.Second, planned) && err == nil && !interrupted {
		// The text of the finding is the same in every run, so it is reported only once.
		late := fmt.Sprintf("%s, %s, took seconds longer than it should in some run: something stalled, before or after the measured time if no figure shows it", c.subject.Name, c.label())
		if !slices.Contains(r.findings, late) {
			r.findings = append(r.findings, late)
		}
	}
	if err != nil && !interrupted {
		// A failed cell has no valid figures, but its attempts are still checked for violations.
		measured.Interrupted = true
		r.failures.add(c.subject, c.label(), run, classify(ctx, c.subject, err))
	} else if !interrupted {
		r.failures.served(c.subject)
		r.measured++
	}
	return r.keep(measured)
}

// keep writes a cell to the result folder. If a cell has modes, keep writes a cell for each mode.
func (r *runner) keep(c results.Cell) (err error) {
	if len(c.Modes) == 0 {
		r.checker.Add(c.Section, c.Attempts)
		return r.folder.Add(c)
	}
	for _, m := range c.Modes {
		mode, names := m.Mode, m.Names
		m.Section = c.Section
		m.Mode, m.Names = mode, names
		err = errors.Join(err, r.keep(m))
	}
	return err
}

// classify returns an [InvalidError] if no caller finished an operation, but the store answers.
func classify(ctx context.Context, sub *subject, err error) error {
	if errors.Is(err, measure.ErrNothingDone) && sub.check != nil {
		// Ask the store. If it is down, no caller could finish an operation.
		ctx, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		if down := sub.check(ctx); down != nil {
			return sub.dead(fmt.Errorf("%w; %w", err, down))
		}
	}
	switch {
	case errors.Is(err, driver.ErrDenied), errors.Is(err, driver.ErrUnavailable), errors.Is(err, measure.ErrFloor):
		return sub.dead(err)
	case errors.Is(err, measure.ErrNothingDone):
		return &InvalidError{fmt.Errorf("%s: %w", sub.Name, err)}
	}
	return err
}

func (r *runner) takes(c cell) time.Duration { return c.scenario.Takes(r.input(c, 0)) }

// input gives the scenario a seed that depends only on the plan's seed and the number of the run.
// Therefore subjects that are compared get the same sequence of requests.
func (r *runner) input(c cell, run int) measure.Input {
	n := max(c.Clients, c.Keys)
	for i := len(c.subject.names); i < n; i++ {
		c.subject.names = append(c.subject.names, fmt.Sprintf("lockbench/%d/%d", r.clock.Zero().UnixNano()+c.subject.series, i))
	}
	return measure.Input{
		Workload: c.Workload, Locker: c.subject.locker, Host: c.subject.host, Clock: r.clock, TTL: c.subject.ttl,
		Tick: r.plan.Tick, For: r.plan.For / time.Duration(r.plan.Runs), Server: c.subject.server,
		Seed: r.plan.Seed + uint64(run)<<32, Rate: r.plan.Rate, Commands: c.subject.commands(), Relays: c.subject.relays,
		Names: c.subject.names[:n], WarmUp: r.plan.WarmUp, Measure: r.plan.Measure,
	}
}

func (r *runner) manifest() (m results.Manifest, err error) {
	m = results.Manifest{
		Started: r.clock.Zero().UTC(),
		Plan:    r.plan.recorded(r.backends, r.baselines), Skipped: r.skipped, Notes: r.notes,
	}
	if r.rendezvous != nil {
		m.Rendezvous = &results.Rendezvous{ID: r.rendezvous.said.All, Part: r.rendezvous.mine + 1}
	}
	for _, s := range r.subjects {
		if m.Subject(s.Name).Name == "" { // a subject occurs once for each RTT
			m.Subjects = append(m.Subjects, s.Subject)
		}
	}
	m.Binaries, err = checksums(r.binaries)
	return m, err
}

// notPossible returns why a cell with host processes cannot be measured, or "" if it can be.
func (r *runner) notPossible(sub *subject, sc measure.Scenario, workload measure.Workload) string {
	switch {
	case !sc.Processes && sub.Kind != results.KindPlugin:
		return "the baselines, which run in lockbench's own process,"
	case sub.Scope == string(driver.ScopeHost):
		return sub.Name + ", whose store belongs to one host process and is not seen by others,"
	case !sc.Processes:
		return ""
	case sub.Kind == results.KindBaseline && r.plan.Quick:
		return "with --quick the baselines, whose takeovers take a TTL each,"
	}
	in := r.input(cell{Workload: workload, subject: sub, scenario: sc}, 0)
	if why := measure.NotPossible(in); why != "" {
		return fmt.Sprintf("%s in mode %s, %s,", sub.Name, workload.Mode, why)
	}
	if sub.Kind == results.KindBaseline && r.plan.Tick > 0 {
		lock, err := sub.locker.Lock("tick", in.TTL)
		if _, ok := lock.(load.Trier); err != nil || !ok {
			return sub.Name + ", which cannot ask just once at every tick,"
		}
	}
	return ""
}

func (c cell) label() string {
	out := c.scenario.Name
	if c.Mode != "" {
		out += " " + c.Mode
	}
	if c.Hosts > 0 {
		out += fmt.Sprintf(", hosts %d", c.Hosts)
	}
	if c.RTT > 0 {
		out += fmt.Sprintf(", rtt %v", c.RTT)
	}
	if c.scenario.Processes { // in these scenarios the number of clients is a number of locks
		return out
	}
	return fmt.Sprintf("%s, clients %d", out, c.Clients)
}
