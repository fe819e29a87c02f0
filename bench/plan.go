// Package bench plans a run and carries it out: servers, plugins, scenarios,
// one result folder.
package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockbench/lockbench/bench/baseline"
	"github.com/lockbench/lockbench/bench/record"
	"github.com/lockbench/lockbench/bench/scenario"
	"github.com/lockbench/lockbench/core/driver"
)

// Plan is what to measure. [Plan.Check] is asked before it is run.
type Plan struct {
	// Backends are plugins by name. None means every plugin that is found and
	// whose server can be had; what is left out then is reported, not an error.
	Backends  []string
	Scenarios []string
	// Faults are those of the safety scenario; none means all, or the most
	// telling ones of a quick plan.
	Faults    []string
	Baselines []string // those of backends that are not measured are left out
	Clients   []int    // concurrent callers of one host, each a cell; none: the scenario's own numbers
	Hosts     []int    // host processes, each a cell
	Runs      int      // repetitions of every cell
	TTL       time.Duration
	// WarmUp and Measure are for one cell in one run.
	WarmUp, Measure time.Duration
	Seed            uint64
	Quick           bool
	MTLS            bool
	// Targets are the addresses of the caller's own servers by backend. The
	// others get throwaway servers.
	Targets map[string]string
	// Config is further configuration by backend.
	Config map[string]driver.Config
	// PluginDirs are searched before the directory of the executable and PATH.
	PluginDirs []string
	// Out is the directory of the result folder, new or empty.
	Out string
	// Version is that of lockbench.
	Version string
}

// The durations of one cell in one run.
const (
	warmUp       = 200 * time.Millisecond
	measure      = time.Second
	quickWarmUp  = 50 * time.Millisecond
	quickMeasure = 200 * time.Millisecond
	// quickRuns is the fewest runs that have a confidence interval.
	quickRuns = 6
)

// DefaultPlan is what "lockbench run" measures without flags, or with --quick.
func DefaultPlan(quick bool) Plan {
	p := Plan{
		Scenarios: []string{"acquire"},
		Hosts:     []int{1},
		Runs:      10,
		TTL:       10 * time.Second,
		WarmUp:    warmUp,
		Measure:   measure,
		Quick:     quick,
		MTLS:      true,
	}
	if quick {
		p.Runs, p.WarmUp, p.Measure = quickRuns, quickWarmUp, quickMeasure
	}
	return p
}

// Check finds what cannot be measured. Its errors are [*UsageError]s.
func (p Plan) Check() error {
	if p.isSafety() {
		return p.checkSafety()
	}
	if len(p.Faults) > 0 {
		return usagef("faults are for scenario %s", SafetyScenario)
	}
	for _, s := range p.Scenarios {
		sc, ok := scenario.ByName(s)
		if !ok {
			return usagef("there is no scenario %q%s", s, driver.Suggest(s, append(scenario.Names(), SafetyScenario)))
		}
		if slices.ContainsFunc(p.Hosts, func(n int) bool { return n != 1 }) {
			return usagef("scenario %s does not take a number of hosts, %v", s, p.Hosts)
		}
		if sc.MinClients > 0 && len(p.Clients) > 0 && slices.Max(p.Clients) < sc.MinClients {
			return usagef("scenario %s needs at least %d clients", s, sc.MinClients)
		}
	}
	for _, b := range p.Baselines {
		if _, ok := baseline.ByName(b); !ok {
			return usagef("there is no baseline %q%s", b, driver.Suggest(b, baseline.Names()))
		}
	}
	for _, n := range p.Clients {
		if n < 1 || n > 4096 {
			return usagef("%d clients are not between 1 and 4096", n)
		}
	}
	switch {
	case len(p.Scenarios) == 0:
		return usagef("no scenario was named")
	case p.Runs < 1 || p.Runs > 1000:
		return usagef("%d runs are not between 1 and 1000", p.Runs)
	}
	return nil
}

// clients are the numbers of callers in a scenario.
func (p Plan) clients(sc scenario.Scenario) []int {
	if len(p.Clients) == 0 {
		return sc.Clients
	}
	return p.Clients
}

// cell is one combination of the compared dimensions.
type cell struct {
	subject  *subject
	scenario scenario.Scenario // of a floor, only its name
	clients  int
}

// group is what the cells have in common that are compared with each other.
type group struct {
	scenario string
	clients  int
}

// rounds orders the cells of each run: every run has every cell once, in an
// order of its own that depends on the seed alone. The subjects of one scenario
// and number of clients follow each other, in random order, so that those that
// are compared met the same machine.
func rounds(cells []cell, runs int, seed uint64) [][]cell {
	r := rand.New(rand.NewPCG(seed, 0x6c6f636b))
	var groups [][]cell
	index := map[group]int{}
	for _, c := range cells {
		key := group{c.scenario.Name, c.clients}
		if _, ok := index[key]; !ok {
			index[key] = len(groups)
			groups = append(groups, nil)
		}
		groups[index[key]] = append(groups[index[key]], c)
	}
	out := make([][]cell, runs)
	for i := range out {
		r.Shuffle(len(groups), func(a, b int) { groups[a], groups[b] = groups[b], groups[a] })
		for _, g := range groups {
			r.Shuffle(len(g), func(a, b int) { g[a], g[b] = g[b], g[a] })
			out[i] = append(out[i], g...)
		}
	}
	return out
}

// recorded is the plan as run.json keeps it.
func (p Plan) recorded(backends, baselines []string) record.Plan {
	targets := []string{}
	for b := range p.Targets {
		targets = append(targets, b)
	}
	slices.Sort(targets)
	return record.Plan{
		Seed: p.Seed, Backends: backends, Baselines: baselines, Scenarios: p.Scenarios,
		Clients: p.Clients, Hosts: p.Hosts, Runs: p.Runs, TTLms: p.TTL.Milliseconds(),
		WarmUpms: p.WarmUp.Milliseconds(), Measurems: p.Measure.Milliseconds(),
		MTLS: p.MTLS, Quick: p.Quick, Env: "local", OwnTargets: targets,
	}
}

// UsageError is a plan that cannot be carried out as asked.
type UsageError struct{ Msg string }

func (e *UsageError) Error() string { return e.Msg }

func usagef(format string, args ...any) error { return &UsageError{fmt.Sprintf(format, args...)} }
