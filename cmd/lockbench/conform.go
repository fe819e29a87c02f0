package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/internal/conform"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

type conformFlags struct {
	format  string
	mtls    string
	verbose bool
	require bool
	servers serverFlags
}

func conformCommand() *cobra.Command {
	var f conformFlags
	cmd := &cobra.Command{
		Use:   "conform NAME|PATH",
		Short: "Hold a plugin to the rules of the contract",
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
		Args:              oneArg("plugin"),
		ValidArgsFunction: firstBackend(cobra.ShellCompDirectiveDefault),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("require") {
				f.require = drivertest.Required()
			}
			progress := newProgress(cmd.ErrOrStderr(), "starting the plugin and its server")
			defer progress.End()
			return f.run(cmd.Context(), args[0], progress, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fl := cmd.Flags()
	choiceVar(fl, &f.format, "format", "text", "output: text or json", "text", "json")
	choiceVar(fl, &f.mtls, "mtls", "on", "mutual TLS between host and plugin, `on|off`; off for a plugin that has none", "on", "off")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "show every case")
	fl.BoolVar(&f.require, "require", false, "fail when a rule that applies did not run (default in CI)")
	f.servers.add(fl)
	return cmd
}

// sweepTimeout bounds how long the server of a caller's is cleaned.
const sweepTimeout = 30 * time.Second

func (f *conformFlags) run(ctx context.Context, nameOrPath string, progress *progress, stdout, stderr io.Writer) (err error) {
	found, d, cfg, err := f.servers.resolved(ctx, nameOrPath, stderr)
	if err != nil {
		return err
	}
	takes := func(key string) bool {
		return slices.ContainsFunc(d.Keys, func(k driver.Key) bool { return k.Name == key })
	}
	o := conform.Options{Name: found.Name, Path: found.Path, Config: cfg, Namespaces: takes("prefix"), NoMTLS: f.mtls == "off"}
	// A backend without an address has no server: what it needs is in cfg.
	if len(f.servers.targets) == 0 && cfg["address"] == "" && takes("address") {
		servers, err := bench.StartServers(ctx, found, true)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, servers.Close()) }()
		maps.Copy(cfg, servers.Config)
		o.Servers = servers
	} else if prefix := bench.OwnPrefix(d, cfg); prefix != "" {
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepTimeout)
			defer cancel()
			err = errors.Join(err, kinds.Of(found.Name).Sweep(ctx, cfg, prefix))
		}()
	}
	return f.suite(ctx, o, progress, stdout)
}

// caseDoc and ruleDoc are results as JSON has them.
type caseDoc struct {
	Name   string  `json:"name"`
	Result string  `json:"result"`
	Reason string  `json:"reason,omitempty"`
	Log    string  `json:"log,omitempty"`
	Took   float64 `json:"took_s"`
}

type ruleDoc struct {
	Rule   string    `json:"rule"`
	Title  string    `json:"title"`
	Result string    `json:"result"`
	Cases  []caseDoc `json:"cases"`
}

// suite runs the cases and shows each rule as soon as it is decided.
func (f *conformFlags) suite(ctx context.Context, o conform.Options, progress *progress, stdout io.Writer) error {
	s := shown{flags: *f, stdout: progress.above(stdout)}
	progress.Begin(len(drivertest.Rules()), 0)
	progress.Step("")
	err := conform.Run(ctx, o, func(r drivertest.RuleResult) {
		s.rule(r)
		progress.Step("after " + r.Rule.ID)
	})
	progress.End()
	s.stdout = stdout
	if ctx.Err() != nil {
		return bench.ErrInterrupted
	}
	if err != nil {
		return &bench.EnvError{Backend: o.Name, Err: err}
	}
	return s.end()
}

// shown is what was shown of a suite so far.
type shown struct {
	flags  conformFlags
	stdout io.Writer
	counts [drivertest.NotRun + 1]int
	docs   []ruleDoc
}

func (s *shown) rule(r drivertest.RuleResult) {
	s.counts[r.Outcome]++
	if s.flags.format == "json" {
		s.docs = append(s.docs, document(r))
		return
	}
	fmt.Fprintln(s.stdout, r)
	for _, c := range r.Cases {
		if s.flags.verbose || c.Outcome == drivertest.Fail {
			showCase(s.stdout, c)
		}
	}
}

// end closes the document or counts in a last line, and returns an error if a
// rule has failed, or did not run although it had to.
func (s *shown) end() error {
	all, passed, failed, notRun := len(drivertest.Rules()), s.counts[drivertest.Pass], s.counts[drivertest.Fail], s.counts[drivertest.NotRun]
	if s.flags.format == "json" {
		if err := writeJSON(s.stdout, s.docs); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(s.stdout, "%d of %d rules ran: %d passed, %d failed; %d could not be checked, %d do not apply\n",
			passed+failed, all, passed, failed, notRun, s.counts[drivertest.NA])
	}
	switch {
	case failed > 0:
		return fmt.Errorf("%w: %d of %d rules fail", errConform, failed, all)
	case notRun > 0 && s.flags.require:
		return hinted(fmt.Errorf("%d of %d rules could not be checked, and all that apply are required", notRun, all),
			"let it start a server of its own, or --require=false")
	}
	return nil
}

func showCase(w io.Writer, c drivertest.CaseResult) {
	fmt.Fprintf(w, "      %-8s %s (%.1f s)", c.Outcome, c.Case.Name, c.Took.Seconds())
	if c.Reason != "" {
		fmt.Fprintf(w, ": %s", c.Reason)
	}
	fmt.Fprintln(w)
	for line := range strings.Lines(c.Log) {
		fmt.Fprintf(w, "          %s\n", strings.TrimRight(line, "\n"))
	}
}

func document(r drivertest.RuleResult) ruleDoc {
	doc := ruleDoc{Rule: r.Rule.ID, Title: r.Rule.Title, Result: r.Outcome.String()}
	for _, c := range r.Cases {
		doc.Cases = append(doc.Cases, caseDoc{c.Case.Name, c.Outcome.String(), c.Reason, c.Log, c.Took.Seconds()})
	}
	return doc
}
