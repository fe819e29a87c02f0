package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/internal/record"
	"github.com/lockbench/lockbench/internal/report"
	"github.com/lockbench/lockbench/internal/similar"
	"github.com/lockbench/lockbench/internal/stat"
)

func compareCommand() *cobra.Command {
	var format, filter string
	var failOn []string
	cmd := &cobra.Command{
		Use:   "compare OLD NEW | DIR",
		Short: "Say what differs between two saved runs, or two builds of one",
		Long: `compare tests for each figure whether the runs of two result folders differ:
medians with their 95% intervals, the Mann-Whitney U test corrected by Holm's
method for the number of rows, and Cliff's delta as the size of the effect. A
difference that the runs do not support is shown as ~. It needs no server.

Folders from different hours differ by drift alone. One folder of
"lockbench run --vs BIN_DIR" holds two builds that were interleaved: name it
alone.

--fail-on may be given several times, and stops with exit 5. There are three
kinds of limits; each looks at plugins only.

  UNIT > +N%            the change of a median, when it is supported
  UNIT > N              the figure itself, a time with its unit: 20ms
  UNIT / BASELINE < N   its ratio to a baseline's in the same cell, run by run

For a change it says the smallest one that these runs could have shown; when
that is beyond the limit, passing would mean nothing, and the comparison is
invalid (exit 4). A figure is that of the newer folder: the median over the
runs, and of max-* and for a limit of 0 that of the worst run. With such limits
alone one folder of one build will do. Of several cells the worst is shown.`,
		Example: `  lockbench compare results/old results/new
  lockbench compare results/old results/new --fail-on 'p99-ns/acquire > +10%'
  lockbench compare results/old results/new --filter '/backend:redis /clients:64'
  lockbench compare results/vs --fail-on 'p50-ns/* > +5%' --fail-on 'cycles/s < -5%'
  lockbench compare results/new --filter /clients:64 --fail-on 'cycles/s / redislock < 1.8'`,
		Args:              needs(1, 2, "two result folders, or one that holds two builds"),
		ValidArgsFunction: directories,
		RunE: func(cmd *cobra.Command, args []string) error {
			gates, err := parseGates(failOn)
			if err != nil {
				return err
			}
			c, err := loadComparison(args, filter, gates)
			if err != nil {
				return err
			}
			if err := writeComparison(c, format, cmd.OutOrStdout()); err != nil {
				return err
			}
			return judge(c, gates, cmd.ErrOrStderr())
		},
	}
	choiceVar(cmd.Flags(), &format, "format", "text", "output, `text|md|json`", "text", "md", "json")
	cmd.Flags().StringVar(&filter, "filter", "", "compare these cells only, a `FILTER` as of benchstat")
	cmd.Flags().StringArrayVar(&failOn, "fail-on", nil, "exit with 5 when a figure or its change is beyond a `LIMIT`, such as 'UNIT > +N%'")
	return cmd
}

func parseGates(texts []string) ([]stat.Gate, error) {
	var out []stat.Gate
	for _, text := range texts {
		g, err := stat.ParseGate(text)
		if err != nil {
			return nil, hinted(usagef("--fail-on %v", err), "--fail-on 'p99-ns/acquire > +10%', 'p50-ns/handoff > 2ms' or 'cycles/s / redislock < 1.8'")
		}
		out = append(out, g)
	}
	return out, nil
}

func loadComparison(dirs []string, filter string, gates []stat.Gate) (stat.Comparison, error) {
	var c stat.Comparison
	var err error
	changes, bounds := divided(gates)
	alone := len(bounds) > 0 && len(changes) == 0 && len(dirs) == 1
	switch {
	case alone:
		c.New = dirs[0]
	case len(dirs) == 1:
		c, err = stat.Builds(dirs[0], filter)
	default:
		c, err = stat.Folders(dirs[0], dirs[1], filter)
	}
	var unknown []string
	if err == nil && len(bounds) > 0 {
		unknown, err = c.Hold(dirs[len(dirs)-1], filter, bounds)
	}
	switch {
	case len(unknown) > 0:
		return c, usagef("--fail-on: no plugin has the figure %q in %s", unknown[0], dirs[len(dirs)-1])
	case errors.Is(err, record.ErrPlans) && len(dirs) == 1:
		return c, hinted(usagef("%v", err), "name two folders, or make one with lockbench run --vs BIN_DIR")
	case errors.Is(err, record.ErrPlans):
		return c, hinted(usagef("%v", err), "run both with the same flags, or interleave them: lockbench run --vs BIN_DIR")
	case errors.Is(err, stat.ErrFilter):
		return c, hinted(usagef("--filter %q: %v", filter, err), "--filter '/backend:redis /clients:(8 OR 64)'")
	case errors.Is(err, record.ErrIncomplete):
		return c, &bench.InvalidError{Err: err}
	case err != nil:
		return c, err
	case len(c.Rows) == 0 && !alone:
		return c, &bench.InvalidError{Err: errors.New("there is no figure that both have")}
	}
	return c, nil
}

// divided are the gates for changes, and those for figures.
func divided(gates []stat.Gate) (changes, bounds []stat.Gate) {
	for _, g := range gates {
		if g.Bound() {
			bounds = append(bounds, g)
			continue
		}
		changes = append(changes, g)
	}
	return changes, bounds
}

func writeComparison(c stat.Comparison, format string, w io.Writer) error {
	switch format {
	case "md":
		return report.ComparisonMarkdown(w, c)
	case "json":
		return report.ComparisonJSON(w, c)
	}
	return report.ComparisonText(w, c)
}

// judge turns what the gates say into an error, and says what they could have
// seen.
func judge(c stat.Comparison, gates []stat.Gate, stderr io.Writer) error {
	var texts []string
	for _, h := range c.Held {
		if h.Broken {
			texts = append(texts, report.HeldLine(h))
		}
	}
	changes, _ := divided(gates)
	v, unknown := c.Judge(changes)
	if len(unknown) > 0 {
		return hinted(usagef("--fail-on: no figure of a plugin has the unit %q%s", unknown[0], similar.Suggest(unknown[0], c.Units())),
			"there are "+strings.Join(c.Units(), ", "))
	}
	for _, f := range v.Failed {
		texts = append(texts, fmt.Sprintf("%s: %s changed by %+.1f%% (%s)", report.ShortCell(f.Row.Cell), f.Row.Unit, 100*f.Row.Delta, f.Gate))
	}
	if len(texts) > 0 {
		return fmt.Errorf("%w: %s", errRegression, strings.Join(texts, "; "))
	}
	if v.Blind != "" {
		return &bench.InvalidError{Err: fmt.Errorf("--fail-on compares nothing: %s", v.Blind)}
	}
	return insensitive(v.Sensitivities, stderr)
}

// insensitive refuses gates that passed because nothing could have stopped there.
func insensitive(all []stat.Sensitivity, stderr io.Writer) error {
	var blind []string
	for _, p := range all {
		what := fmt.Sprintf("%+.1f%% or more", 100*p.Detectable)
		if math.IsInf(p.Detectable, 0) {
			what = "no change at all"
		}
		line := fmt.Sprintf("--fail-on '%s': these runs could have shown %s of %s in %s", p.Gate, what, p.Row.Unit, report.ShortCell(p.Row.Cell))
		if p.Suffices() {
			fmt.Fprintln(stderr, line)
			continue
		}
		blind = append(blind, line)
	}
	if len(blind) == 0 {
		return nil
	}
	err := &bench.InvalidError{Err: fmt.Errorf("too few runs, or too much noise, to show a change of that size: %s", strings.Join(blind, "; "))}
	return hinted(err, "more runs, a quieter machine, or fewer rows by --filter; or a wider limit")
}
