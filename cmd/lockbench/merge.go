package main

import (
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
)

func mergeCommand() *cobra.Command {
	var out string
	var repeats bool
	cmd := &cobra.Command{
		Use:   "merge DIR DIR... -o DIR",
		Short: "Put several result folders together into one",
		Long: `merge writes one result folder from others, which must be of the same plan and
the same binaries.

The folders are parts of one load that several machines made at the same time,
with "run --parts": rates are added up, and the report shows the total on the
target beside each part's share. merge checks that each cell was measured by all
parts at once, for 80 % of its time at least, and refuses them otherwise. Parts
that waited for each other need no clocks for that; of others merge believes the
clocks of their machines.

With --repeats the folders are repetitions, of whenever: their runs follow each
other, and the figures stay those of one machine.

Latencies are added up as histograms; no percentile is averaged.`,
		Example: `  lockbench merge results/1 results/2 results/3 results/4 -o results/all
  lockbench merge --repeats results/monday results/tuesday -o results/both`,
		Args: needs(2, math.MaxInt, "at least two result folders"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return hinted(usagef("%s needs a folder to write to", cmd.CommandPath()), cmd.UseLine())
			}
			if err := checkFolder(out); err != nil {
				return err
			}
			busy, err := bench.Merge(out, repeats, args...)
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
	cmd.Flags().BoolVar(&repeats, "repeats", false, "the folders are repetitions: their runs follow each other")
	return cmd
}
