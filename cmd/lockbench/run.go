package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/internal/baseline"
	"github.com/lockbench/lockbench/internal/check"
	"github.com/lockbench/lockbench/internal/explore"
	"github.com/lockbench/lockbench/internal/fault"
	"github.com/lockbench/lockbench/internal/record"
	"github.com/lockbench/lockbench/internal/report"
	"github.com/lockbench/lockbench/internal/scenario"
)

// runFlags are the flags of "lockbench run" as they were typed.
type runFlags struct {
	given        bench.Plan // what they say of it
	mtls, format string
	verbose      bool
	servers      serverFlags
	explore      exploreFlags
}

func runCommand() *cobra.Command {
	f := runFlags{given: bench.DefaultPlan(false)}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Measure backends, and check their safety",
		Long: `run starts servers and plugins, measures every backend under every scenario,
checks that no lock was held twice and that tokens rise, writes a result folder
and prints its table.

Without --target it starts throwaway servers of its own on free loopback ports,
and removes them afterwards. With --target it works under a prefix of its own,
and removes what it has made. Backends whose server is not installed are left
out and named, unless --backends asks for them.

Scenarios:
` + scenarioHelp() + `
Faults of scenario safety:
  ` + wrap(strings.Join(fault.Names(), " "), 76, 2) + `

Actions of scenario explore:
  ` + wrap(strings.Join(explore.ActionNames(), " "), 76, 2) + `

Baselines, measured in this process on the same server:
` + baselineHelp(),
		Example: `  lockbench run --quick --baselines
  lockbench run --scenarios takeover --ttl 1.2s --tick 1s --candidates 3
  lockbench run --scenarios safety --quick
  lockbench run --scenarios safety --backends redis --faults failover,failover-wait
  lockbench run --scenarios explore --backends etcd --for 30m --seed 7
  lockbench run --reproducer results/explore/reproducer-etcd-1.json
  lockbench run --backends redis --clients 1,64 --target redis=10.0.0.7:6379
  lockbench run --backends redis --target redis=env:REDIS_URL -o results/staging
  lockbench run --backends redis --target redis=env:REDIS_URL --parts 4 -o results/1
  lockbench run --backends redis --vs ../old/bin -o results/vs && lockbench compare results/vs`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd)
		},
	}
	fl, p := cmd.Flags(), &f.given
	fl.StringSliceVar(&p.Backends, "backends", nil, "plugins to measure, a `LIST` with commas (default: all that can be)")
	fl.StringSliceVar(&p.Scenarios, "scenarios", p.Scenarios, "what to measure, a `LIST` or all, or "+bench.SafetyScenario+", or "+bench.ExploreScenario)
	fl.StringSliceVar(&p.Faults, "faults", nil, "faults of scenario safety, a `LIST` (default all; the most telling with --quick)")
	fl.StringSliceVar(&p.Baselines, "baselines", nil, "measure these libraries too, a `LIST`; without one, all of them")
	fl.Lookup("baselines").NoOptDefVal = "all"
	fl.BoolVar(&p.Quick, "quick", false, "fewer and shorter runs: about a minute for one scenario and all backends; more for each mode of takeover, whose TTL is then "+bench.QuickTTL.String())
	fl.IntVar(&p.Runs, "runs", p.Runs, "repetitions of every cell, `N` (6 with --quick; of safety 3, or 1)")
	fl.IntSliceVar(&p.Clients, "clients", nil, "concurrent callers of one host, a `LIST` (default: the scenario's own)")
	fl.IntSliceVar(&p.Hosts, "hosts", p.Hosts, "host processes in scenarios "+strings.Join(scenario.AcrossHosts(), " and ")+", a `LIST`: each has --clients callers")
	fl.IntSliceVar(&p.Keys, "keys", nil, "locks in scenario throughput, a `LIST` (default 1024, and 8 with a hold of 1ms)")
	fl.DurationSliceVar(&p.Hold, "hold", nil, "how long locks are held in scenarios throughput, contend and footprint, a `LIST`")
	fl.Lookup("hold").DefValue = "" // else its help ends with "(default [])"
	fl.DurationVar(&p.Measure, "measure", p.Measure, "measured time of every cell (150ms with --quick)")
	fl.Float64Var(&p.Rate, "rate", 0, "cycles per second, `N`, of the open loop of acquire (default: half of the closed loop's)")
	fl.StringSliceVar(&p.Modes, "modes", nil, "how leaders end in scenario takeover, a `LIST` or all (default kill-host)")
	fl.IntVar(&p.Candidates, "candidates", 0, "processes that campaign in scenario takeover, `N` (default 2)")
	fl.DurationVar(&p.Tick, "tick", 0, "how often candidates of scenario takeover ask (default: they wait until they are woken)")
	fl.DurationVar(&p.TTL, "ttl", p.TTL, "TTL of the leases")
	fl.Uint64Var(&p.Seed, "seed", 0, "seed `N` of the order of the cells (default: random, recorded)")
	fl.IntVar(&p.Parts, "parts", 0, "this is one of `N` runs, on as many machines, that measure the same cells at the same time; then lockbench merge")
	choiceVar(fl, &p.Env, "env", "", "where throwaway servers run, `local|compose` (default: where they are kept, else local)", bench.Environments()...)
	stateVar(fl, &p.State)
	choiceVar(fl, &f.mtls, "mtls", "on", "mutual TLS between host and plugin, `on|off`", "on", "off")
	choiceVar(fl, &f.format, "format", "text", "output, `text|md|json`", formats...)
	fl.StringVar(&p.VS, "vs", "", "measure the plugins of another build in `BIN_DIR` too, interleaved; then lockbench compare DIR")
	fl.StringVarP(&p.Out, "output", "o", "", "result folder `DIR`, new or empty (default results/<UTC time>)")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "show the log of core and the plugins")
	f.servers.add(fl)
	f.explore.add(cmd)
	return cmd
}

func (f *runFlags) run(ctx context.Context, cmd *cobra.Command) error {
	if f.explores() {
		return f.runExplore(ctx, cmd)
	}
	p, err := f.plan(cmd)
	if err != nil {
		return err
	}
	if err := p.Check(); err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	if f.verbose {
		log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	progress := newProgress(cmd.ErrOrStderr(), "starting servers and plugins")
	if p.Parts > 0 {
		fmt.Fprintf(progress.above(cmd.ErrOrStderr()), "one of %d parts; waits for the others on %s\n", p.Parts, p.Backends[0])
	}
	res, err := bench.Run(ctx, p, bench.Options{Progress: progress, Log: log})
	progress.End()
	if res.Cells == 0 || err != nil && res.Verdict.Granted() == 0 {
		return verdict(res, orInterrupted(ctx, err))
	}
	if showErr := f.show(p.Out, cmd.OutOrStdout(), cmd.ErrOrStderr()); showErr != nil {
		return errors.Join(err, showErr)
	}
	return verdict(res, err)
}

func orInterrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// verdict turns the end of a run into its error. A violation comes first.
func verdict(res bench.Result, err error) error {
	if n := res.Verdict.Unsafe(); n > 0 {
		return errors.Join(fmt.Errorf("%w: %d in %d grants", errUnsafe, n, res.Verdict.Granted()), err)
	}
	switch {
	case res.Interrupted:
		return errInterrupted
	case err != nil:
		return err
	case res.Cells == 0 || res.Verdict.Granted() == 0:
		return &bench.InvalidError{Err: errors.New("invalid run: nothing was granted")}
	}
	return invalid(res.Verdict)
}

// invalid is the error of a verdict that leaves cells open.
func invalid(v check.Verdict) error {
	if cells := v.Invalid(); len(cells) > 0 {
		return &bench.InvalidError{Err: fmt.Errorf("invalid: %s", strings.Join(cells, "; "))}
	}
	return nil
}

func (f *runFlags) show(dir string, stdout, stderr io.Writer) error {
	r, err := report.Load(dir)
	if err != nil {
		return err
	}
	if err := write(r, f.format, stdout); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "results in %s; lockbench report %s makes a page of them\n", dir, dir)
	return nil
}

// plan turns flags into a plan. All its errors are of usage.
func (f *runFlags) plan(cmd *cobra.Command) (p bench.Plan, err error) {
	p = f.given
	p.MTLS, p.PluginDirs, p.Version = f.mtls == "on", f.servers.pluginDirs, version()
	if p.State == "" {
		if p.State, err = bench.DefaultState(); err != nil {
			return p, err
		}
	}
	if p.Targets, p.Config, err = f.servers.parse(cmd.ErrOrStderr()); err != nil {
		return p, err
	}
	if err := expand(cmd, &p); err != nil {
		return p, err
	}
	if err := numbers(cmd, &p); err != nil {
		return p, err
	}
	if err := checkFolder(p.Out); err != nil {
		return p, err
	}
	if p.Out == "" {
		p.Out = freshDir(filepath.Join("results", time.Now().UTC().Format("20060102T150405Z")))
	}
	return p, nil
}

// expand replaces "all" by what there is, and drops what was named twice.
func expand(cmd *cobra.Command, p *bench.Plan) error {
	for _, list := range []struct {
		names *[]string
		all   []string // none: the word has no meaning
	}{
		{&p.Backends, nil},
		{&p.Scenarios, scenario.Names()},
		{&p.Faults, nil},
		{&p.Baselines, baseline.Names()},
		{&p.Modes, scenario.Modes()},
	} {
		if len(list.all) > 0 && slices.Contains(*list.names, "all") {
			*list.names = list.all
		}
		*list.names = unique(*list.names)
	}
	p.Clients, p.Hosts, p.Keys, p.Hold = unique(p.Clients), unique(p.Hosts), unique(p.Keys), unique(p.Hold)
	for flag, names := range map[string][]string{"backends": p.Backends, "modes": p.Modes} {
		if cmd.Flags().Changed(flag) && len(names) == 0 {
			return usagef("--%s names none", flag)
		}
	}
	return nil
}

// numbers fills in those that depend on other flags.
func numbers(cmd *cobra.Command, p *bench.Plan) error {
	changed := cmd.Flags().Changed
	if p.TTL == 0 {
		return hinted(usagef("--ttl 0 would be a lease that has ended"), "omit it for the default of 10s")
	}
	if !changed("seed") {
		p.Seed = rand.Uint64N(1e9) // short enough to be typed again
	}
	if p.Quick && !changed("ttl") && slices.Equal(p.Scenarios, []string{"takeover"}) {
		p.TTL = bench.QuickTTL
	}
	usual := bench.DefaultPlan(p.Quick)
	p.WarmUp = usual.WarmUp
	if !changed("measure") {
		p.Measure = usual.Measure
	}
	isSafety := slices.Contains(p.Scenarios, bench.SafetyScenario)
	switch {
	case isSafety && changed("runs") && p.Runs < 1:
		return usagef("%d runs are not between 1 and 1000", p.Runs)
	case isSafety && !changed("runs"):
		p.Runs = 0 // it has its own number of rounds
	case !changed("runs"):
		p.Runs = usual.Runs
	}
	if isSafety {
		return refuse(cmd, bench.SafetyScenario, notOfSafety)
	}
	return nil
}

// The flags that mean nothing for a scenario that is run alone.
var (
	ofMeasuring     = []string{"ttl", "clients", "hosts", "keys", "hold", "rate", "modes", "candidates", "tick", "env", "vs"}
	notOfSafety     = slices.Concat(ofMeasuring, []string{"parts"})
	notOfExplore    = slices.Concat(ofMeasuring, []string{"measure", "faults", "quick", "runs"})
	notOfReproducer = slices.Concat(ofMeasuring, []string{"measure", "faults", "quick", "seed", "for", "actions", "keep-going", "backends", "scenarios"})
)

// refuse finds flags that mean nothing for a scenario.
func refuse(cmd *cobra.Command, scenario string, flags []string) error {
	for _, flag := range flags {
		if cmd.Flags().Changed(flag) {
			return usagef("--%s means nothing for scenario %s", flag, scenario)
		}
	}
	return nil
}

// checkFolder refuses what means standard output elsewhere.
func checkFolder(out string) error {
	if out != "-" {
		return nil
	}
	return hinted(usagef("-o - is not a folder, and results are several files"), "lockbench report DIR -o - prints the page")
}

// freshDir is dir, or with a number when another run of this second has it.
func freshDir(dir string) string {
	fresh := dir
	for n := 2; record.Vacant(fresh) != nil && n < 100; n++ {
		fresh = fmt.Sprintf("%s-%d", dir, n)
	}
	return fresh
}

// unique drops what was named twice, and keeps the order.
func unique[T comparable](in []T) []T {
	var out []T
	for _, v := range in {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}
