package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/core/drivertest"
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
	cmd := &cobra.Command{
		Use:   "describe NAME|PATH",
		Short: "Show what a plugin claims and which configuration it takes",
		Example: `  lockbench plugins describe redis
  lockbench plugins describe ./bin/lockplugin-mine --format json`,
		Args:              needs(1, 1, "a plugin"),
		ValidArgsFunction: firstBackend(cobra.ShellCompDirectiveDefault),
	}
	pluginDirVar(cmd.Flags(), &dirs)
	return showing(cmd, func(cmd *cobra.Command, args []string) (*bench.Outcome, error) {
		return bench.DescribePlugin(cmd.Context(), args[0], dirs)
	})
}

func pluginsNewCommand() *cobra.Command {
	var lang, dir, module, replace string
	var cas bool
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Write the skeleton of a backend in Go or Python",
		Long: `new writes a package in Go that compiles, its plugin's main and a test that runs
the conformance suite. The test is red until the operations are written; the
text docs/authoring.md leads from there to a green one. Inside a Go module the
package becomes part of it, elsewhere it gets a module of its own.

In Python it writes a plugin that keeps locks in a file of SQLite, and passes
the suite: replace its store by yours. No file is ever overwritten.`,
		Example: `  lockbench plugins new my-store
  lockbench plugins new my-store --lang python
  lockbench plugins new my-store -o backends/mystore --module example.com/mystore`,
		Args: needs(1, 1, "a name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			shown, err := bench.NewPlugin(args[0], lang, cas, dir, module, replace)
			return errors.Join(show(shown, "text", cmd), err)
		},
	}
	fl := cmd.Flags()
	choiceVar(fl, &lang, "lang", "go", "in which language: go or python", bench.Languages...)
	fl.BoolVar(&cas, "cas", false, "for a store with compare-and-set: six methods, and package cas does the rest")
	fl.StringVarP(&dir, "output", "o", "", "write into `DIR` (default NAME)")
	fl.StringVar(&module, "module", "", "`PATH` of the new module (default example.com/lockplugin-NAME)")
	fl.StringVar(&replace, "replace", "", "build against the checkout of lockbench in `DIR`")
	return cmd
}

func conformCommand() *cobra.Command {
	var p bench.ConformPlan
	cmd := &cobra.Command{
		Use:   "conform NAME|PATH",
		Short: "Check a plugin against the rules of the contract",
		Long: `conform runs the conformance suite against a plugin binary, in whatever language
it is written, and prints one line for each rule: pass, fail, n/a with the
property of the backend that excuses it, or not run with what is missing.

It kills and freezes the plugin and processes that use it. It starts a throwaway
server, which it stops and empties too; with --target, or with --config
BACKEND.address, it uses yours, does neither, and removes the keys and tables
that it has made, which are under a prefix of their own. It exits with 1 when
a rule fails, and with --require also when one that applies did not run; that
is the default where CI is true or LOCKBENCH_REQUIRE is set. The last line
counts.`,
		Example: `  lockbench conform redis
  lockbench conform ./bin/lockplugin-mine --config mine.address=127.0.0.1:7000`,
		Args:              needs(1, 1, "a plugin"),
		ValidArgsFunction: firstBackend(cobra.ShellCompDirectiveDefault),
		RunE: func(cmd *cobra.Command, args []string) error {
			p.Plugin = args[0]
			if !cmd.Flags().Changed("require") {
				p.Require = drivertest.Required()
			}
			progress := newProgress(cmd.ErrOrStderr(), "starting the plugin and its server")
			p.Rules = progress.above(cmd.OutOrStdout())
			shown, err := bench.Conform(cmd.Context(), p, bench.Options{Progress: progress, Lines: progress.above(cmd.ErrOrStderr())})
			return showRun(shown, "text", cmd, progress, err)
		},
	}
	fl := cmd.Flags()
	fl.BoolVarP(&p.AllCases, "verbose", "v", false, "show every case")
	fl.BoolVar(&p.Require, "require", false, "fail when a rule that applies did not run (default in CI)")
	startedVar(fl, &p.Servers)
	fl.Lookup("mtls").Usage += "; off for a plugin that has none"
	serversVar(fl, &p.Servers)
	return cmd
}
