package main

import (
	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
)

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
