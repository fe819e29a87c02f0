package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/internal/explore"
)

// exploreFlags are those of scenario explore and of --reproducer.
type exploreFlags struct {
	lasts                time.Duration
	actions              []string
	keepGoing            bool
	reproducer, recorder string
}

func (x *exploreFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.DurationVar(&x.lasts, "for", 10*time.Minute, "how long scenario explore searches, on all backends together")
	fl.StringSliceVar(&x.actions, "actions", nil, "actions of scenario explore, a `LIST` (default all that fit)")
	fl.BoolVar(&x.keepGoing, "keep-going", false, "let scenario explore search on after the first reproducer of a backend")
	fl.StringVar(&x.reproducer, "reproducer", "", "play a reproducer of scenario explore again, from its `FILE`")
	fl.StringVar(&x.recorder, "recorder", "", "the lockbench `BINARY` that runs the hosts of scenario explore, an older one for example (default: this one)")
}

// explores reports whether the command is one of scenario explore.
func (f *runFlags) explores() bool {
	return f.explore.reproducer != "" || slices.Contains(f.given.Scenarios, bench.ExploreScenario)
}

// runExplore explores, or plays a reproducer.
func (f *runFlags) runExplore(ctx context.Context, cmd *cobra.Command) error {
	other := notOfExplore
	if f.explore.reproducer != "" {
		other = notOfReproducer
	}
	if err := refuse(cmd, bench.ExploreScenario, other); err != nil {
		return err
	}
	p, err := f.plan(cmd)
	if err != nil {
		return err
	}
	if f.explore.reproducer != "" {
		return f.playReproducer(ctx, cmd.OutOrStdout(), p)
	}
	log := &exploreLog{w: cmd.ErrOrStderr(), all: f.verbose}
	x := bench.Exploration{
		Plan: p, For: f.explore.lasts, Actions: unique(f.explore.actions), KeepGoing: f.explore.keepGoing, Recorder: f.explore.recorder, Log: log.line, Progress: log.progress,
	}
	found, err := bench.Explore(ctx, x)
	if len(found) == 0 {
		return orInterrupted(ctx, err)
	}
	if showErr := showFound(found, f.format, cmd.OutOrStdout()); showErr != nil {
		return errors.Join(err, showErr)
	}
	return exploreVerdict(ctx, found, err)
}

// exploreVerdict turns what was found into the command's error. A violation
// comes first.
func exploreVerdict(ctx context.Context, found []explore.Found, err error) error {
	reproducers, grants := 0, 0
	for _, one := range found {
		reproducers += len(one.Reproducers)
		grants += one.Grants
	}
	switch {
	case reproducers > 0:
		return errors.Join(fmt.Errorf("%w: %d reproducers in %d grants", errUnsafe, reproducers, grants), err)
	case ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return err
	case grants == 0:
		return &bench.InvalidError{Err: errors.New("invalid run: nothing was granted")}
	}
	return nil
}

// showFound prints what was found.
func showFound(found []explore.Found, format string, w io.Writer) error {
	if format == "json" {
		return writeJSON(w, found)
	}
	for _, one := range found {
		verdict := "no claim was broken"
		if n := len(one.Reproducers); n > 0 {
			verdict = fmt.Sprintf("BROKEN: %d reproducers, and %d violations that these explain", n, one.Again)
		}
		fmt.Fprintf(w, "%s: %s\n  %d schedules, %d grants, %d actions; %s\n", one.Backend, verdict, one.Schedules, one.Grants, one.Actions, one.Covered.Line())
		fmt.Fprintf(w, "  %d schedules on a machine that was starved, %d of which left a claim with a time unjudged; %d documented exceptions were seen\n",
			one.Starved, one.Unjudged, one.Exempt)
		if missing := one.Covered.Missing(); len(missing) > 0 {
			fmt.Fprintf(w, "  not met: %s\n", strings.Join(missing, " "))
		}
		if one.Failed > 0 {
			fmt.Fprintf(w, "  %d schedules could not be played, the last: %s\n", one.Failed, one.Failure)
		}
		for _, s := range one.Reproducers {
			fmt.Fprint(w, indented(s.Text()))
		}
	}
	return nil
}

func indented(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
}

// reproducerRuns is how often a reproducer is played if nobody says.
const reproducerRuns = 10

// playReproducer plays the reproducer of a file again.
func (f *runFlags) playReproducer(ctx context.Context, w io.Writer, p bench.Plan) error {
	runs := p.Runs
	if runs < 1 {
		runs = reproducerRuns
	}
	reproducer, played, err := bench.PlayReproducer(ctx, f.explore.reproducer, p, f.explore.recorder, runs)
	if err != nil {
		return orInterrupted(ctx, err)
	}
	fmt.Fprint(w, reproducer.Text())
	fmt.Fprintf(w, "Now: it broke a claim in %d of %d runs, %d grants", played.Shown, played.Runs, played.Grants)
	if played.Unjudged > 0 {
		fmt.Fprintf(w, "; %d runs on a machine that was starved left a claim with a time unjudged", played.Unjudged)
	}
	fmt.Fprintln(w)
	for _, v := range played.Violations {
		fmt.Fprintf(w, "  %s: %s\n", v.Rule, v.What)
	}
	switch {
	case played.Shown > 0:
		return fmt.Errorf("%w: %d of %d runs", errUnsafe, played.Shown, played.Runs)
	case played.Grants == 0:
		return &bench.InvalidError{Err: errors.New("invalid run: nothing was granted")}
	}
	return nil
}

// exploreLog shows how an exploration goes on: what is found, and each schedule
// or one now and then. One goroutine uses it.
type exploreLog struct {
	w    io.Writer
	all  bool
	last time.Time
}

// tellEvery is how often it shows a schedule if not each.
const tellEvery = 10 * time.Second

func (l *exploreLog) line(format string, args ...any) { fmt.Fprintf(l.w, format+"\n", args...) }

func (l *exploreLog) progress(format string, args ...any) {
	if l.all || time.Since(l.last) >= tellEvery {
		l.last = time.Now()
		l.line(format, args...)
	}
}
