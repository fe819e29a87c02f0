package main

import (
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
)

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
