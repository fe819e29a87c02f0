package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/internal/record"
)

func mergeCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "merge DIR DIR... -o DIR",
		Short: "Put the runs of several result folders into one",
		Long: `merge writes a result folder with the runs of others, which must be of the same
plan and the same binaries. A run stays one sample; latencies are added up as
histograms, and no percentile is averaged. run.json and the report say from how
many runs, when and on what, it was merged.`,
		Example: `  lockbench merge results/monday results/tuesday -o results/both`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return hinted(usagef("%s needs at least two result folders", cmd.CommandPath()), cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return hinted(usagef("%s needs a folder to write to", cmd.CommandPath()), cmd.UseLine())
			}
			if err := checkFolder(out); err != nil {
				return err
			}
			err := record.Merge(out, args...)
			switch {
			case errors.Is(err, record.ErrPlans):
				return usagef("%v", err)
			case errors.Is(err, record.ErrIncomplete):
				return &bench.InvalidError{Err: err}
			case err != nil:
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "results in %s\n", out)
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "result folder `DIR`, new or empty")
	return cmd
}
