package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
)

func doctorCommand() *cobra.Command {
	var dirs []string
	var format string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say which plugins, servers and tools are found, and what to do about the others",
		Long: `doctor starts no server. It looks for plugins as a run does, asks each what it
is, and looks for the programs that local servers and containers are made of.
What is missing costs the backends that need it, nothing else; it exits with 3
when there is no plugin that can be used.`,
		Example: `  lockbench doctor
  lockbench doctor --plugin-dir ./bin --format json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			shown, err := bench.Examine(cmd.Context(), dirs)
			return errors.Join(show(shown, format, cmd), err)
		},
	}
	choiceVar(cmd.Flags(), &format, "format", "text", "output: text or json", "text", "json")
	pluginDirVar(cmd.Flags(), &dirs)
	return cmd
}
