package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
)

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
