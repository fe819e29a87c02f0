package main

import (
	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/core/drivertest"
)

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
