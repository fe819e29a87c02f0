package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/bench/internal/faults"
	"github.com/lockbench/lockbench/bench/internal/results"
)

// played is a reproducer, and what became of it.
type played struct {
	Name       string            `json:"name"`
	Reproducer faults.Reproducer `json:"reproducer"`
	Now        faults.Played     `json:"now"`
	Failure    string            `json:"failure,omitempty"` // why it could not be played
}

// replay plays reproducers, one after the other. One that cannot be played does not
// keep the others from it.
func (p FaultsPlan) replay(ctx context.Context, opts Options) (*Outcome, error) {
	chosen, err := p.reproducers()
	if err != nil {
		return nil, err
	}
	p.Backends = nil
	for _, r := range chosen {
		if !slices.Contains(p.Backends, r.Schedule.Backend) {
			p.Backends = append(p.Backends, r.Schedule.Backend)
		}
	}
	runs := p.runs(reproducerRuns, 1)
	backends, m, err := p.judged(ctx, true, "explore", runs)
	if err != nil {
		return nil, orInterrupted(ctx, err)
	}
	var all []played
	var errs []error
	play := func(*results.Folder, *results.Manifest) error {
		tell := &lines{w: opts.Lines, all: opts.Verbose}
		replayers := map[string]*faults.Replayer{}
		defer func() {
			for _, r := range replayers {
				errs = append(errs, r.Close())
			}
		}()
		for i, r := range chosen {
			if ctx.Err() != nil {
				return nil
			}
			tell.mention("%d of %d: %s", i+1, len(chosen), r.Name)
			if p.Seed != 0 {
				r.Schedule.Seed = p.Seed
			}
			of := r.Schedule.Backend
			if replayers[of] == nil {
				b := backends[slices.IndexFunc(backends, func(b faults.Backend) bool { return b.Name == of })]
				if replayers[of], err = faults.NewReplayer(b); err != nil {
					return err
				}
			}
			one := played{Name: r.Name, Reproducer: r}
			if one.Now, err = replayers[of].Play(ctx, r, runs); err != nil && ctx.Err() == nil {
				one.Failure = err.Error()
				errs = append(errs, fmt.Errorf("%s: %w", r.Name, err))
			} else if one.Now.Grants == 0 {
				errs = append(errs, &InvalidError{fmt.Errorf("%s: nothing was granted", r.Name)})
			}
			if p.Out != "" {
				r.Shown, r.Runs = one.Now.Shown, one.Now.Runs
				errs = append(errs, r.WriteFile(filepath.Join(p.Out, r.Name+".json")))
			}
			all = append(all, one)
		}
		return nil
	}
	if p.Out == "" {
		_ = play(nil, nil)
	} else if _, err := fillFolder(ctx, p.Out, m, play); err != nil {
		return nil, err
	}
	shown, grants := 0, 0
	for _, one := range all {
		shown += one.Now.Shown
		grants += one.Now.Grants
	}
	return &Outcome{text: playedText(all), data: all}, ended(ctx.Err() != nil, shown, grants, errors.Join(errs...))
}

// reproducers are those that the plan names, of its backends and with its actions.
func (p FaultsPlan) reproducers() ([]faults.Reproducer, error) {
	kept, err := faults.Kept()
	if err != nil {
		return nil, err
	}
	var chosen []faults.Reproducer
	for _, name := range p.Replay {
		i := slices.IndexFunc(kept, func(r faults.Reproducer) bool { return r.Name == name })
		_, missing := os.Stat(name)
		switch {
		case i >= 0:
			chosen = append(chosen, kept[i])
		case name == "all":
			for _, r := range kept {
				if !r.Long || !p.Quick {
					chosen = append(chosen, r)
				}
			}
		case missing != nil && filepath.Ext(name) == "":
			return nil, unknown("kept reproducer", name, words("replay"))
		default:
			r, err := faults.ReadReproducer(name)
			if err != nil {
				return nil, usagef("%v", err)
			}
			chosen = append(chosen, r)
		}
	}
	actions := p.actions()
	chosen = slices.DeleteFunc(chosen, func(r faults.Reproducer) bool {
		none := len(p.Faults) > 0 || len(p.Actions) > 0
		for _, e := range r.Schedule.Events {
			none = none && !slices.Contains(actions, e.Action)
		}
		return none || len(p.Backends) > 0 && !slices.Contains(p.Backends, r.Schedule.Backend)
	})
	if len(chosen) == 0 {
		return nil, p.nothingChosen("reproducer")
	}
	return chosen, nil
}

func playedText(all []played) string {
	var b strings.Builder
	for _, one := range all {
		b.WriteString(one.Reproducer.Text())
		now := one.Now
		fmt.Fprintf(&b, "Now: it broke a claim in %d of %d runs, %d grants", now.Shown, now.Runs, now.Grants)
		if now.Unjudged > 0 {
			fmt.Fprintf(&b, "; %d runs on a machine that was starved left a claim with a time unjudged", now.Unjudged)
		}
		b.WriteByte('\n')
		for _, v := range now.Violations {
			fmt.Fprintf(&b, "  %s: %s\n", v.Rule, v.What)
		}
		if one.Failure != "" {
			fmt.Fprintf(&b, "  It could not be played: %s\n", one.Failure)
		}
	}
	return b.String()
}
