package main

import (
	"errors"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
)

func reportCommand() *cobra.Command {
	var format, out string
	cmd := &cobra.Command{
		Use:   "report DIR",
		Short: "Print a saved run, and write it as an HTML page",
		Long: `report computes tables and verdict from a result folder, without servers. It
prints them, and writes one self-contained HTML page; with -o - it prints the
page instead.`,
		Example: `  lockbench report results/20260102T030405Z
  lockbench report results/20260102T030405Z --format md -o page.html
  lockbench report results/20260102T030405Z -o - > page.html`,
		Args:              needs(1, 1, "a result folder"),
		ValidArgsFunction: directories,
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "-" && cmd.Flags().Changed("format") {
				return bench.Hinted(usagef("-o - prints the HTML page, so there is no room for --format %s", format),
					"write the page to a file, or run report twice")
			}
			shown, page, err := bench.Report(args[0], out)
			if shown == nil {
				return err
			}
			if out == "-" {
				return shown.Write(cmd.OutOrStdout(), "html")
			}
			if err = errors.Join(show(shown, format, cmd), err); err == nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "page in %s\n", page)
			}
			return err
		},
	}
	choiceVar(cmd.Flags(), &format, "format", "text", "what to print: text, md or json", formats...)
	cmd.Flags().StringVarP(&out, "output", "o", "", "HTML `FILE`, - for standard output (default DIR/"+bench.PageFile+")")
	return cmd
}

func compareCommand() *cobra.Command {
	var format string
	var q bench.Comparison
	cmd := &cobra.Command{
		Use:   "compare OLD NEW | DIR",
		Short: "Say what differs between two saved runs, or two builds of one",
		Long: `compare tests for each figure whether the runs of two result folders differ:
medians with their 95% intervals, and the Mann-Whitney U test corrected by
Holm's method for the number of rows. A difference that the runs do not support
is shown as ~. It needs no server.

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
invalid (exit 4). So it is if some runs, or all of one side, lack the figure: a
p99 needs 500 samples. A figure is that of the newer folder: the median over the
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
			q.Dirs = args
			shown, err := bench.Compare(q, cmd.ErrOrStderr())
			return errors.Join(show(shown, format, cmd), err)
		},
	}
	choiceVar(cmd.Flags(), &format, "format", "text", "output, `text|md`", "text", "md")
	cmd.Flags().StringVar(&q.Filter, "filter", "", "compare these cells only, a `FILTER` as of benchstat")
	cmd.Flags().StringArrayVar(&q.FailOn, "fail-on", nil, "exit with 5 when a figure or its change is beyond a `LIMIT`, such as 'UNIT > +N%'")
	return cmd
}

func checkCommand() *cobra.Command {
	return showing(&cobra.Command{
		Use:   "check DIR",
		Short: "Judge the safety of a saved run again",
		Long: `check reads the recorded attempts of a result folder and looks for two holders
at once and for tokens that do not rise, and judges the rounds of faults.
It needs no server. It exits with 6 on a violation of a backend; those
of baselines, of controls, and what is documented are shown and do not count.`,
		Example: `  lockbench check results/20260102T030405Z
  lockbench check results/20260102T030405Z --format json`,
		Args:              needs(1, 1, "a result folder"),
		ValidArgsFunction: directories,
	}, func(_ *cobra.Command, args []string) (*bench.Outcome, error) { return bench.Check(args[0]) })
}

func mergeCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "merge DIR DIR... -o DIR",
		Short: "Put the parts of one load together into one result folder",
		Long: `merge writes one result folder from others, which are the parts of one load that
several machines made at the same time with "run --parts", by the same binaries.

Rates are added up, and the report shows the total on the target beside each
part's share. Latencies are added up as histograms; no percentile is averaged.
merge checks that each cell was measured by all parts at once, for 80 % of its
time at least, and refuses them otherwise. They waited for each other, so that
needs no clocks.`,
		Example:           `  lockbench merge results/1 results/2 results/3 results/4 -o results/all`,
		Args:              needs(2, math.MaxInt, "at least two result folders"),
		ValidArgsFunction: directories,
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return bench.Hinted(usagef("%s needs a folder to write to", cmd.CommandPath()), cmd.UseLine())
			}
			if err := checkFolder(out); err != nil {
				return err
			}
			busy, err := bench.Merge(out, args...)
			if err != nil {
				return err
			}
			for _, line := range busy {
				fmt.Fprintln(cmd.ErrOrStderr(), line)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "results in %s\n", out)
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "result folder `DIR`, new or empty")
	return cmd
}
