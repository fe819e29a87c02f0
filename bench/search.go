package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/bench/internal/faults"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
)

// search plays random schedules of faults. A soak plays them on all backends at the same time. If a
// backend breaks a claim (a promise of docs/safety.md), search writes the schedule to a file for a
// replay. When ctx ends, search returns what it has found so far.
func (p FaultsPlan) search(ctx context.Context, opts Options) (*Outcome, error) {
	actions := p.actions()
	if len(actions) == 0 {
		return nil, p.nothingChosen("action")
	}
	runs := p.runs(10, 3)
	backends, m, err := p.judged(ctx, true, "explore", runs)
	if err != nil {
		return nil, orInterrupted(ctx, err)
	}
	tell := &lines{w: opts.Lines, all: opts.Verbose}
	tell.say("%s with --seed %d for %v; what is found comes into %s", p.Mode, p.Seed, p.Length, p.Out)
	o := faults.Options{
		Length: p.Length / time.Duration(len(backends)), Seed: p.Seed, Actions: actions, KeepGoing: p.KeepGoing,
		Runs: runs, Shrink: 5 * time.Minute, Log: tell.say, Progress: tell.mention,
	}
	pool := 500 // about as many leases has each host of a soak
	if p.Quick {
		o.Shrink, pool = time.Minute, 50
	}
	found := make([]faults.Found, len(backends))
	each := func(i int) error {
		one, err := faults.Search(ctx, backends[i], o)
		if errors.Is(err, servers.ErrNotInstalled) {
			err = &EnvError{Backend: one.Backend, Err: err}
		}
		if errors.Is(err, faults.ErrUnfit) && len(p.Backends) == 0 {
			tell.say("left out: %v", err)
			return nil
		}
		found[i] = one
		for n, s := range one.Reproducers {
			err = errors.Join(err, s.WriteFile(filepath.Join(p.Out, fmt.Sprintf("reproducer-%s-%d.json", one.Backend, n+1))))
		}
		return err
	}
	m, err = fillFolder(ctx, p.Out, m, func(*results.Folder, *results.Manifest) (err error) {
		if p.Mode == FaultsSoak {
			o.Length, o.Players, o.KeepGoing, o.Pool = p.Length, 1, true, pool
			return inject.AtOnce(len(backends), each)
		}
		for i := 0; i < len(backends) && err == nil && ctx.Err() == nil; i++ {
			err = each(i)
		}
		return err
	})
	found = slices.DeleteFunc(found, func(f faults.Found) bool { return f.Backend == "" })
	for _, line := range m.Busy() {
		tell.say("%s", line)
	}
	if len(found) == 0 {
		return nil, orInterrupted(ctx, err)
	}
	violations, grants := 0, 0
	for _, one := range found {
		violations += len(one.Reproducers) + len(one.Left)
		grants += one.Grants
		if one.Grants == 0 && ctx.Err() == nil {
			err = errors.Join(err, &InvalidError{fmt.Errorf("%s: nothing was granted, so nothing was checked", one.Backend)})
		}
	}
	return &Outcome{text: foundText(found), data: found}, ended(ctx.Err() != nil, violations, grants, err)
}

func foundText(found []faults.Found) string {
	var b strings.Builder
	for _, one := range found {
		verdict := "no claim was broken"
		switch n := len(one.Reproducers); {
		case n > 0:
			verdict = fmt.Sprintf("BROKEN: %d reproducers, and %d violations that these explain", n, one.Again)
		case len(one.Left) > 0:
			verdict = "BROKEN: something was left in the end, or has grown"
		case one.Schedules == 0:
			fmt.Fprintf(&b, "%s: NOT PLAYED: %s\n", one.Backend, one.Failure)
			continue
		}
		fmt.Fprintf(&b, "%s: %s\n  %d schedules, %d grants, %d actions; %s\n", one.Backend, verdict, one.Schedules, one.Grants, one.Actions, one.Covered.Line())
		fmt.Fprintf(&b, "  %d schedules on a machine that was starved, %d of which left a claim with a time unjudged; %d documented exceptions were seen\n",
			one.Starved, one.Unjudged, one.Exempt)
		if len(one.Covered.NotMet) > 0 {
			fmt.Fprintf(&b, "  not met: %s\n", strings.Join(one.Covered.NotMet, " "))
		}
		if one.Failed > 0 {
			fmt.Fprintf(&b, "  %d schedules could not be played, the last: %s\n", one.Failed, one.Failure)
		}
		writeUses(&b, one)
		for _, s := range one.Reproducers {
			b.WriteString("  " + strings.ReplaceAll(strings.TrimSpace(s.Text()), "\n", "\n  ") + "\n")
		}
	}
	return b.String()
}

func writeUses(w io.Writer, f faults.Found) {
	last := map[string]*faults.Usage{}
	for _, u := range f.Uses {
		last[u.Who] = u
	}
	for _, u := range f.Uses {
		if last[u.Who] == u {
			fmt.Fprintf(w, "  %s, at rest: %v, then %v\n", u.Who, u.First, u.Last)
		}
	}
	if len(f.Uses) > 0 {
		fmt.Fprintf(w, "  and %d processes that actions have ended; use may grow by %s\n", len(f.Uses)-len(last), faults.Allowance())
	}
	for _, what := range f.Left {
		fmt.Fprintf(w, "  LEFT: %s\n", what)
	}
}

// played is a reproducer and the result of playing it again.
type played struct {
	Name       string            `json:"name"`
	Reproducer faults.Reproducer `json:"reproducer"`
	Now        faults.Played     `json:"now"`
	Failure    string            `json:"failure,omitempty"` // why it could not be played
}

// replay plays reproducers (schedules that broke a claim), and goes on if one cannot be played.
func (p FaultsPlan) replay(ctx context.Context, opts Options) (*Outcome, error) {
	chosen, err := p.reproducers()
	if err != nil {
		return nil, err
	}
	p.Backends = nil
	for _, r := range chosen {
		p.Backends = append(p.Backends, r.Schedule.Backend)
	}
	runs := p.runs(10, 1)
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
			r.Schedule.Seed = cmp.Or(p.Seed, r.Schedule.Seed)
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
			} else if one.Now.Grants == 0 && ctx.Err() == nil {
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
		err = play(nil, nil)
	} else {
		_, err = fillFolder(ctx, p.Out, m, play)
	}
	if err != nil {
		return nil, err
	}
	shown, grants := 0, 0
	for _, one := range all {
		shown += one.Now.Shown
		grants += one.Now.Grants
	}
	return &Outcome{text: playedText(all), data: all}, ended(ctx.Err() != nil, shown, grants, errors.Join(errs...))
}

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
