package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/internal/record"
)

// Resume returns the plan of a run into dir that was interrupted, killed or
// failed, to be carried out by [Run]: what has figures is kept, and the rest is
// measured. given has what a folder does not keep, and must be the same as
// before: Targets, Config, PluginDirs, VS and State. A folder of which nobody
// can go on is an error wrapping record's ErrNotResumable.
func Resume(dir string, given Plan) (Plan, error) {
	a, err := record.ReadAsked(dir)
	if err != nil {
		return Plan{}, err
	}
	if now := given.asks(); !slices.Equal(a.Config, now.Config) {
		return Plan{}, usagef("%s was measured with %s, and would go on with %s: addresses and configuration are not kept there; name them as before",
			dir, keys(a.Config), keys(now.Config))
	}
	if a.VS != (given.VS != "") {
		return Plan{}, usagef("%s was measured with --vs: %v; now: %v", dir, a.VS, given.VS != "")
	}
	p := planOf(a)
	p.Targets, p.Config, p.PluginDirs, p.VS, p.State = given.Targets, given.Config, given.PluginDirs, given.VS, given.State
	p.Version, p.Out, p.resumes = given.Version, dir, true
	return p, nil
}

func keys(config []string) string {
	if len(config) == 0 {
		return "no configuration"
	}
	return strings.Join(config, ", ")
}

// asks is what the plan has to do, as a folder keeps it.
func (p Plan) asks() record.Asked {
	a := record.Asked{Plan: p.recorded(p.Backends, p.Baselines), TTL: p.TTL, WarmUp: p.WarmUp, Measure: p.Measure, Tick: p.Tick, VS: p.VS != ""}
	for backend, cfg := range p.Config {
		for key := range cfg {
			a.Config = append(a.Config, backend+"."+key)
		}
	}
	for backend := range p.Targets {
		a.Config = append(a.Config, backend+".address")
	}
	slices.Sort(a.Config)
	a.Config = slices.Compact(a.Config)
	return a
}

// planOf is the plan that was recorded, as it was asked for.
func planOf(a record.Asked) Plan {
	r := a.Plan
	p := Plan{
		Seed: r.Seed, Backends: r.Backends, Baselines: r.Baselines, Scenarios: r.Scenarios,
		Clients: r.Clients, Hosts: r.Hosts, Keys: r.Keys, Rate: r.Rate, Runs: r.Runs, TTL: a.TTL, WarmUp: a.WarmUp, Measure: a.Measure,
		Modes: r.Modes, Candidates: r.Candidates, Tick: a.Tick, MTLS: r.MTLS, Quick: r.Quick, Env: r.Env,
	}
	for _, ns := range r.HoldNs {
		p.Hold = append(p.Hold, time.Duration(ns))
	}
	return p
}

// interrupted is a run that another one goes on with. It has the folder locked.
// What it says of nil is that nothing was measured before.
type interrupted struct {
	folder *record.Folder
	units  []record.Unit
	done   map[done]bool
	// passed are the cells that failed in a run before one in which they have
	// figures: the n-th line of a cell would not be its n-th run any more.
	passed map[done]*record.FailedCell
	taken  bool // the folder is the new run's
}

type done struct {
	cell string
	run  int
}

func reopen(dir string) (*interrupted, error) {
	folder, units, err := record.Reopen(dir)
	if err != nil {
		return nil, err
	}
	b := &interrupted{folder: folder, units: units, done: map[done]bool{}, passed: map[done]*record.FailedCell{}}
	last := map[string]int{}
	for _, u := range units {
		if u.Done {
			b.done[done{u.Cell, u.Run}] = true
			last[u.Cell] = max(last[u.Cell], u.Run)
		}
	}
	for _, u := range units {
		if key := (done{u.Cell, u.Run}); !u.Done && u.Failed != nil && u.Run < last[u.Cell] && !b.done[key] {
			b.passed[key] = u.Failed
		}
	}
	return b, nil
}

// leave gives up a folder that was not taken over.
func (b *interrupted) leave() error {
	if b.taken {
		return nil
	}
	return b.folder.Leave()
}

// has reports whether a cell is not to be measured in a run any more.
func (b *interrupted) has(c cell, run int) bool {
	key := done{c.section().Name(), run}
	return b != nil && (b.done[key] || b.passed[key] != nil)
}

// last is the unit that ended last.
func (b *interrupted) last() record.Unit { return b.units[len(b.units)-1] }

// openFolder makes the folder of a new run, or takes over that of the one before
// with what is known of it.
func (r *runner) openFolder(m record.Manifest) (err error) {
	if r.before == nil {
		if r.folder, err = record.Create(r.plan.Out, m); err == nil && r.plan.Parts == 0 {
			err = r.folder.KeepJournal(r.plan.asks())
		}
		return err
	}
	folder := r.before.folder
	old := folder.Manifest()
	if why := old.SameSetup(m); why != "" {
		if left := append(r.skipped, r.failures.reasons()...); len(left) > 0 {
			why += " (left out: " + strings.Join(left, "; ") + ")"
		}
		return &UsageError{fmt.Sprintf("%s cannot be resumed: %s, so that what is measured now would be no part of it", r.plan.Out, why)}
	}
	last := r.before.last()
	m.Started = old.Started
	m.Resumed = append(old.Resumed, record.Resumption{At: r.clock.Started().UTC(), Units: len(r.before.done), Away: r.clock.Started().Sub(last.At).Seconds()})
	for _, one := range m.Resumed {
		m.Notes = append(m.Notes, one.Words())
	}
	for _, u := range r.before.units {
		r.findings = append(r.findings, u.Findings...)
	}
	for _, u := range r.before.units {
		f := u.Failed
		if f == nil || r.before.passed[done{u.Cell, u.Run}] != f {
			continue
		}
		sub := &subject{Subject: m.Subject(f.Backend)}
		r.failures.add(sub, f.Cell, f.Run, errors.New(f.Reason))
		r.failures.served(sub) // in a later run
	}
	r.measured = len(r.before.done)
	if err := folder.Resume(m, last); err != nil {
		return err
	}
	r.folder, r.before.taken = folder, true
	return folder.Replay(func(s record.Section, attempts []record.Attempt) error {
		r.checker.Add(s, attempts)
		return nil
	})
}

// elapsed is for how long the run was at work until now, in seconds.
func (r *runner) elapsed() float64 {
	before := 0.0
	if r.before != nil {
		before = r.before.last().Elapsed
	}
	return before + time.Since(r.clock.Started()).Seconds()
}
