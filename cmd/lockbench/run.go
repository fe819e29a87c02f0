package main

import (
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
)

type runFlags struct {
	played
	given bench.Plan // the plan as the flags give it
	list  bool
}

func runCommand() *cobra.Command {
	f := runFlags{given: bench.DefaultPlan(false)}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Measure backends, and check their safety",
		Long: `run starts servers and plugins, measures every backend under every scenario,
checks that no lock was held twice and that tokens rise, writes a result folder
and prints its table. Throwaway servers are started and removed; with --target
it works under a prefix of its own, which it removes. Backends whose server is
not installed are left out and named, unless --backends asks for them. --list
says what scenarios, modes and baselines are:

` + bench.ScenarioHelp(),
		Example: `  lockbench run --quick --baselines --rtt 0,500us,2ms
  lockbench run --scenarios takeover --ttl 1.2s --tick 1s --candidates 3
  lockbench run --scenarios ttl --backends redis --for 10m --stress
  lockbench run --backends redis --clients 1,64 --target redis=10.0.0.7:6379
  lockbench run --backends redis --target redis=env:REDIS_URL --parts 4 -o results/1
  lockbench run --vs ../old/bin -o results/vs && lockbench compare results/vs`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if args, old := faultsArgs(cmd); old {
				return runFaults(cmd, args)
			}
			if f.list {
				return show(bench.Names(), f.format, cmd)
			}
			p, err := f.plan(cmd)
			if err != nil {
				return err
			}
			return f.play(cmd, func(opts bench.Options) (*bench.Outcome, error) { return bench.Run(cmd.Context(), p, opts) })
		},
	}
	fl, p := cmd.Flags(), &f.given
	fl.StringSliceVar(&p.Backends, "backends", nil, "plugins, a `LIST` with commas (default all)")
	fl.StringSliceVar(&p.Scenarios, "scenarios", p.Scenarios, "what to measure, a `LIST` or all")
	fl.StringSliceVar(&p.Baselines, "baselines", nil, "measure these libraries too, a `LIST`; all without one")
	fl.Lookup("baselines").NoOptDefVal = "all"
	fl.BoolVar(&p.Quick, "quick", false, "fewer and shorter runs, a minute for a scenario; takeover's TTL is then "+bench.QuickTTL.String())
	fl.IntVar(&p.Runs, "runs", p.Runs, "repetitions of every cell, `N` (6 with --quick)")
	fl.IntSliceVar(&p.Clients, "clients", nil, "concurrent callers of a host, a `LIST` (default: the scenario's)")
	fl.IntSliceVar(&p.Hosts, "hosts", nil, "host processes in throughput and contend, a `LIST` (default 1, and 2,8)")
	fl.IntSliceVar(&p.Keys, "keys", nil, "locks in throughput, a `LIST` (default 1024, and 8)")
	fl.DurationSliceVar(&p.Hold, "hold", nil, "how long locks are held in throughput, contend and footprint, a `LIST`")
	fl.Lookup("hold").DefValue = "" // otherwise the help of this flag would end with "(default [])"
	fl.DurationSliceVar(&p.RTT, "rtt", nil, "round trips to stores to add, a `LIST`")
	fl.Lookup("rtt").DefValue = ""
	fl.DurationVar(&p.Measure, "measure", p.Measure, "measured `TIME` of a cell (150ms with --quick)")
	fl.Float64Var(&p.Rate, "rate", 0, "cycles/s of acquire's open loop, `N` (default: half the closed one's)")
	fl.StringSliceVar(&p.Modes, "modes", nil, "how leaders end in takeover, a `LIST` or all (default kill-host)")
	fl.IntVar(&p.Candidates, "candidates", 0, "candidates of takeover, `N` (default 2)")
	fl.DurationVar(&p.Tick, "tick", 0, "how often candidates ask, `TIME` (default: they are woken)")
	fl.DurationVar(&p.For, "for", p.For, "how long ttl lasts, `TIME`")
	fl.BoolVar(&p.Stress, "stress", false, "load processors and disk meanwhile")
	fl.DurationVar(&p.TTL, "ttl", p.TTL, "`TIME` of the leases")
	fl.Uint64Var(&p.Seed, "seed", 0, "`N` that orders the cells (default: random)")
	fl.IntVar(&p.Parts, "parts", 0, "one of `N` runs that measure together; then merge")
	choiceVar(fl, &p.Env, "env", "", "where servers run, `local|compose` (default: where they are kept)", bench.Environments()...)
	choiceVar(fl, &f.format, "format", "text", "output, `text|md|json`", formats...)
	fl.StringVar(&p.VS, "vs", "", "plugins of another build too, in `BIN_DIR`; then compare")
	fl.StringVarP(&p.Out, "output", "o", "", "result folder `DIR` (default results/<UTC time>)")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "show the log of core and the plugins")
	fl.BoolVar(&f.list, "list", false, "name scenarios, modes and baselines")
	startedVar(fl, &p.Servers)
	serversVar(fl, &p.Servers)
	oldFlags(fl)
	return cmd
}

func (f *runFlags) plan(cmd *cobra.Command) (p bench.Plan, err error) {
	p = f.given
	changed := cmd.Flags().Changed
	usual := bench.DefaultPlan(p.Quick)
	p.WarmUp = usual.WarmUp
	if !changed("measure") {
		p.Measure = usual.Measure
	}
	if !changed("for") {
		p.For = usual.For
	}
	switch {
	case changed("runs"):
	case slices.Equal(p.Scenarios, []string{"ttl"}):
		p.Runs = 1 // one long run sees as many stalls as several short runs, and allows longer TTLs
	default:
		p.Runs = usual.Runs
	}
	if p.TTL == 0 {
		return p, bench.Hinted(usagef("--ttl 0 would be a lease that has ended"), "omit it for the default of 10s")
	}
	if p.Quick && !changed("ttl") && slices.Equal(p.Scenarios, []string{"takeover"}) {
		p.TTL = bench.QuickTTL
	}
	return p, errors.Join(namesSome(cmd, "backends", p.Backends), namesSome(cmd, "modes", p.Modes), checkFolder(p.Out))
}

func namesSome(cmd *cobra.Command, flag string, names []string) error {
	if cmd.Flags().Changed(flag) && len(names) == 0 {
		return usagef("--%s names none", flag)
	}
	return nil
}

// checkFolder returns an error for "-", which means standard output in other commands.
func checkFolder(out string) error {
	if out != "-" {
		return nil
	}
	return bench.Hinted(usagef("-o - is not a folder, and results are several files"), "lockbench report DIR -o - prints the page")
}

type faultsFlags struct {
	played
	given        bench.FaultsPlan // the plan as the flags give it
	search, soak time.Duration
}

func faultsCommand() *cobra.Command { return new(faultsFlags).command() }

func (f *faultsFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "faults",
		Short: "Break hosts, networks and servers, and judge whether locks stay locks",
		Long: `faults plays the table of faults: one process holds 20 locks, another one wants
them, and a fault is injected. It gives a verdict for each backend and fault.
--search draws random schedules, and shrinks one that breaks a claim of
docs/safety.md; --replay plays such a reproducer again; --soak draws
schedules for hosts that live on in one environment. Servers are lockbench's
own, on free ports, and are removed afterwards. It exits with 6 if a claim was
broken.`,
		Example: `  lockbench faults --quick
  lockbench faults --backends redis --faults failover,failover-wait
  lockbench faults --search 30m --backends etcd --seed 7
  lockbench faults --replay reaper
  lockbench faults --replay results/search/reproducer-etcd-1.json
  lockbench faults --soak 30m
  lockbench faults --list`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := f.plan(cmd)
			if err != nil {
				return err
			}
			return f.play(cmd, func(opts bench.Options) (*bench.Outcome, error) { return bench.Faults(cmd.Context(), p, opts) })
		},
	}
	fl, p := cmd.Flags(), &f.given
	fl.DurationVar(&f.search, "search", 0, "draw schedules for `TIME`, on all backends together")
	fl.StringSliceVar(&p.Replay, "replay", nil, "play reproducers: `NAME`, a file, or all")
	fl.DurationVar(&f.soak, "soak", 0, "let hosts live on for `TIME`, on all backends at once")
	fl.Bool("list", false, "name faults, actions and reproducers, a line each")
	fl.StringSliceVar(&p.Backends, "backends", nil, "plugins, a `LIST` with commas (default all)")
	fl.StringSliceVar(&p.Faults, "faults", nil, "only these faults, a `LIST`, or the actions that they do")
	fl.StringSliceVar(&p.Actions, "actions", nil, "only these actions, a `LIST`, or what does one of them")
	fl.BoolVar(&p.Quick, "quick", false, "the most telling faults, once; a rougher search; a small soak; short reproducers")
	fl.IntVar(&p.Runs, "runs", 0, "plays of each fault (default 3) or reproducer (10), `N`")
	fl.Uint64Var(&p.Seed, "seed", 0, "`N` that decides schedules, orders, moments (default: random)")
	fl.BoolVar(&p.KeepGoing, "keep-going", false, "search on after a backend's first reproducer")
	fl.StringVar(&p.HostProgram, "host-program", "", "run the host processes by this lockbench, an older one for example: `BINARY`")
	choiceVar(fl, &f.format, "format", "text", "output, `text|md|json`", formats...)
	fl.StringVarP(&p.Out, "output", "o", "", "result folder `DIR` (default results/<UTC time>)")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "show logs, and each schedule or round")
	startedVar(fl, &p.Servers)
	fl.StringArrayVar(&p.Claims, "claims", nil, "what they do not promise: `BACKEND=FILE`")
	configVar(fl, &p.Config)
	pluginDirVar(fl, &p.PluginDirs)
	return cmd
}

func (f *faultsFlags) plan(cmd *cobra.Command) (p bench.FaultsPlan, err error) {
	p = f.given
	for _, mode := range []struct {
		is     bench.FaultsMode
		length time.Duration
	}{{bench.FaultsSearch, f.search}, {bench.FaultsReplay, 0}, {bench.FaultsSoak, f.soak}, {bench.FaultsList, 0}} {
		if !cmd.Flags().Changed(string(mode.is)) {
			continue
		}
		if p.Mode != bench.FaultsTable {
			return p, usagef("--%s and --%s are two things to do: choose one", p.Mode, mode.is)
		}
		p.Mode, p.Length = mode.is, mode.length
	}
	if cmd.Flags().Changed("runs") && p.Runs < 1 {
		return p, usagef("%d runs are not between 1 and 1000", p.Runs)
	}
	return p, errors.Join(namesSome(cmd, "backends", p.Backends), namesSome(cmd, "faults", p.Faults), namesSome(cmd, "actions", p.Actions), checkFolder(p.Out))
}
