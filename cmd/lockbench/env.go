package main

import "github.com/spf13/cobra"

func envCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "env",
		Short:   "See which servers and tools there are to measure with",
		Example: `  lockbench env doctor`,
		Args:    cobra.ArbitraryArgs,
		RunE:    parentOnly,
	}
	cmd.AddCommand(envDoctorCommand())
	return cmd
}
