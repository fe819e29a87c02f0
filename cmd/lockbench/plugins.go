package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
)

func pluginsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plugins",
		Short: "List and describe the plugins that are found, or begin a new one",
		Example: `  lockbench plugins list
  lockbench plugins describe redis
  lockbench plugins new mybackend`,
	}
	cmd.AddCommand(pluginsListCommand(), pluginsDescribeCommand(), pluginsNewCommand())
	return cmd
}

func pluginsListCommand() *cobra.Command {
	var dirs []string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the plugins in --plugin-dir, beside lockbench and on the PATH, with their versions",
		Example: `  lockbench plugins list --plugin-dir ./bin`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			shown, err := bench.Plugins(cmd.Context(), dirs)
			return errors.Join(show(shown, "text", cmd), err)
		},
	}
	pluginDirVar(cmd.Flags(), &dirs)
	return cmd
}

func pluginsDescribeCommand() *cobra.Command {
	var dirs []string
	var format string
	cmd := &cobra.Command{
		Use:   "describe NAME|PATH",
		Short: "Show what a plugin claims and which configuration it takes",
		Example: `  lockbench plugins describe redis
  lockbench plugins describe ./bin/lockplugin-mine --format json`,
		Args:              needs(1, 1, "a plugin"),
		ValidArgsFunction: firstBackend(cobra.ShellCompDirectiveDefault),
		RunE: func(cmd *cobra.Command, args []string) error {
			shown, err := bench.DescribePlugin(cmd.Context(), args[0], dirs)
			return errors.Join(show(shown, format, cmd), err)
		},
	}
	pluginDirVar(cmd.Flags(), &dirs)
	choiceVar(cmd.Flags(), &format, "format", "text", "output: text or json", "text", "json")
	return cmd
}
