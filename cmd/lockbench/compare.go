package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
)

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
